"""The driver's answers to workers, though the driver may have to ask for their questions twice."""

from concurrent.futures import ThreadPoolExecutor

from subquad.ray.driver import _Head


def test_a_question_stays_until_it_is_answered_and_one_answer_given_twice_is_harmless():
    head = _Head()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(head.ask, ("worker_group", "done"))
        questions: dict = {}
        while not questions:
            questions = head.exchange({}, 0)
        assert head.exchange({}, 0) == questions  # the call before was lost
        ((name, question),) = questions.items()
        assert question == ("worker_group", "done")
        assert head.exchange({name: "a run"}, 15) == {}
        assert head.exchange({name: "a run"}, 15) == {}
        assert first.result() == "a run"
        assert head.signum() == 15
