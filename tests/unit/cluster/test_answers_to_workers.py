"""The driver's answers to workers, though the driver may have to ask for their questions twice."""

from concurrent.futures import ThreadPoolExecutor

from subquad.ray.files import _Head


def test_a_question_stays_until_it_is_answered_and_one_answer_given_twice_is_harmless():
    head = _Head()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(head.ask, ("worker_group", "done"))
        questions: dict = {}
        while not questions:
            questions = head.exchange({})
        assert head.exchange({}) == questions  # the call before was lost
        ((name, question),) = questions.items()
        assert question == ("worker_group", "done")
        assert head.exchange({name: "a run"}) == {}
        assert head.exchange({name: "a run"}) == {}
        assert first.result() == "a run"
