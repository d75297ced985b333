"""Combinations that cannot work: each refusal names both keys and a value, and that value then
works.
"""

from __future__ import annotations

import pytest

STEPS = ("train.steps=100",)
GPU = ("resources.gpus_per_worker=1",)
BUCKETS = "train.bucket_batches=8"

ROWS = {
    "epochs and steps": (
        ("train.steps=5", "train.epochs=2"),
        "train: give train.epochs or train.steps, and null for the other",
        ("train.steps=5", "train.epochs=null"),
    ),
    "neither epochs nor steps": (
        ("train.epochs=null",),
        "train: give train.epochs or train.steps, and null for the other",
        ("train.steps=5",),
    ),
    "two evaluation periods": (
        ("train.eval_every_epochs=1", "train.eval_every_steps=5"),
        "train: give train.eval_every_epochs or train.eval_every_steps, and null for the other",
        ("train.eval_every_steps=5",),
    ),
    "final rate of a constant schedule": (
        ("train.min_lr_ratio=0.1",),
        "train: min_lr_ratio 0.1 has no effect with schedule constant: leave it at "
        "0.0, or use schedule "
        "linear or cosine",
        ("train.min_lr_ratio=0.1", "train.schedule=linear"),
    ),
    "final rate of one-cycle": (
        ("train.min_lr_ratio=0.1", "train.schedule=one-cycle"),
        "train: min_lr_ratio 0.1 has no effect with schedule one-cycle: leave it "
        "at 0.0, or use schedule "
        "linear or cosine",
        ("train.min_lr_ratio=0.1", "train.schedule=cosine"),
    ),
    "beta2 of sgd": (
        ("train.optimizer=sgd", "train.beta2=0.9"),
        "train: beta2 0.9 has no effect with optimizer sgd: leave it at 0.999, or "
        "use optimizer other than sgd",
        ("train.optimizer=adam", "train.beta2=0.9"),
    ),
    "eps of sgd": (
        ("train.optimizer=sgd", "train.eps=1e-6"),
        "train: eps 1e-06 has no effect with optimizer sgd: leave it at 1e-08, or "
        "use optimizer other than sgd",
        ("train.optimizer=radam", "train.eps=1e-6"),
    ),
    "tf32 of fp64": (
        (*GPU, "train.tf32=true", "train.precision=fp64"),
        "train: tf32 true has no effect with precision fp64: leave it at false, or "
        "use precision other than fp64",
        (*GPU, "train.tf32=true", "train.precision=fp32"),
    ),
    "tf32 on the CPU": (
        ("train.tf32=true",),
        "train.tf32: got true, has no effect with resources.gpus_per_worker 0, on "
        "the CPU; use false, or "
        "resources.gpus_per_worker 1",
        ("train.tf32=true", "resources.gpus_per_worker=1"),
    ),
    "fewer samples than workers": (
        ("train.batch_size=2", "resources.workers=4"),
        "train.batch_size: got 2, must be >= resources.workers (4), as each worker "
        "needs a sample; use "
        "train.batch_size 4",
        ("train.batch_size=4", "resources.workers=4"),
    ),
    "micro-batch above the batch": (
        ("train.micro_batch=32",),
        "train.micro_batch: got 32, has no effect above one worker's share of "
        "train.batch_size (16 over 1); "
        "use null or at most 16",
        ("train.micro_batch=16",),
    ),
    "micro-batch above a worker's share": (
        ("train.micro_batch=7", "resources.workers=3"),
        "train.micro_batch: got 7, has no effect above one worker's share of "
        "train.batch_size (16 over 3); "
        "use null or at most 6",
        ("train.micro_batch=6", "resources.workers=3"),
    ),
    "warm-up as long as the run": (
        (*STEPS, "train.warmup_steps=100"),
        "train.warmup_steps: got 100, must be < train.steps (100); use at most 99",
        (*STEPS, "train.warmup_steps=99"),
    ),
    "evaluation after the end": (
        (*STEPS, "train.eval_every_steps=101"),
        "train.eval_every_steps: got 101, must be <= train.steps (100); use null or at most 100",
        (*STEPS, "train.eval_every_steps=100"),
    ),
    "evaluation after the last epoch": (
        ("train.eval_every_epochs=21",),
        "train.eval_every_epochs: got 21, must be <= train.epochs (20); use null or at most 20",
        ("train.eval_every_epochs=20",),
    ),
    "checkpoint after the end": (
        (*STEPS, "train.checkpoint_every_steps=101"),
        "train.checkpoint_every_steps: got 101, must be <= train.steps (100); use "
        "null or at most 100",
        (*STEPS, "train.checkpoint_every_steps=100"),
    ),
    "paper without evaluations": (
        ("protocol=paper", "train.eval_every_epochs=null"),
        "protocol: got 'paper', which takes the best of several evaluations, but "
        "train.eval_every_epochs and "
        "train.eval_every_steps are null; use train.eval_every_epochs 1",
        ("protocol=paper", "train.eval_every_epochs=1"),
    ),
    "patience without a validation split": (
        ("protocol=fixed", "train.patience=2"),
        "train.patience: got 2, has no effect with protocol 'fixed', which has no "
        "validation split; use null, or "
        "protocol 'honest'",
        ("protocol=honest", "train.patience=2"),
    ),
    "patience without evaluations": (
        ("train.patience=2", "train.eval_every_epochs=null"),
        "train: patience 2 has no effect with eval_every_epochs null and eval_every_steps null: "
        "leave it at null, or use eval_every_epochs other than null or "
        "eval_every_steps other than null",
        ("train.patience=2", "train.eval_every_epochs=1"),
    ),
    "patience longer than the epochs": (
        ("train.patience=19",),
        "train.patience: got 19, cannot stop a run of 20 evaluations early "
        "(train.epochs 20, train.eval_every_epochs "
        "1); use null or at most 18",
        ("train.patience=18",),
    ),
    "patience longer than the steps": (
        (*STEPS, "train.eval_every_steps=60", "train.patience=1"),
        "train.patience: got 1, cannot stop a run of 2 evaluations early "
        "(train.steps 100, train.eval_every_steps 60); "
        "use null",
        (*STEPS, "train.eval_every_steps=60"),
    ),
    "momentum of one-cycle": (
        ("train.schedule=one-cycle", "train.beta1=0.8"),
        "train: beta1 0.8 has no effect with schedule one-cycle: leave it at 0.9, "
        "or use schedule other than one-cycle",
        ("train.schedule=cosine", "train.beta1=0.8"),
    ),
    "sharding over one worker": (
        ("resources.strategy=fsdp2",),
        "resources: strategy fsdp2 has no effect with workers 1: leave it at ddp, "
        "or use workers other than 1",
        ("resources.strategy=fsdp2", "resources.workers=2"),
    ),
    "one and a half GPUs": (
        ("resources.gpus_per_worker=1.5",),
        "resources.gpus_per_worker: got 1.5, must be a whole number where it is "
        "above 1, for each of "
        "resources.workers (1); "
        "use 1 or 2",
        ("resources.gpus_per_worker=2",),
    ),
    "two and a half cores": (
        ("resources.cpus_per_worker=2.5",),
        "resources.cpus_per_worker: got 2.5, must be a whole number where it is "
        "above 1, for each of "
        "resources.workers (1); "
        "use 2 or 3",
        ("resources.cpus_per_worker=3",),
    ),
    "a GPU between two workers": (
        ("resources.gpus_per_worker=0.5", "resources.workers=2"),
        "resources.gpus_per_worker: got 0.5, must be whole with resources.workers "
        "2, as two workers "
        "cannot share a GPU in one "
        "collective call; use 1, or resources.workers 1",
        ("resources.gpus_per_worker=0.5", "resources.workers=1"),
    ),
    "width and heads, said by the plugin": (
        ("backbone.params.num_heads=7",),
        "backbone.params: dim 64 is not divisible by num_heads 7: use num_heads 8, or dim 70",
        ("backbone.params.num_heads=8",),
    ),
    "width and heads, said for the plugin": (
        ("backbone=series-only", "backbone.params.num_heads=7"),
        "backbone.params.dim: got 64, must be divisible by "
        "backbone.params.num_heads (7); use 63 or 70",
        ("backbone=series-only", "backbone.params.num_heads=7", "backbone.params.dim=63"),
    ),
    "a mixer's own limit": (
        ("mixer=block", "mixer.params.block=3"),
        "mixer.params: block 3 does not divide the head width 16: use 4",
        ("mixer=block", "mixer.params.block=4"),
    ),
    "a pole of the Jacobi recurrence": (
        ("mixer.params.jacobi_a=-1", "mixer.params.jacobi_b=-1"),
        "mixer.params: jacobi_a -1 and jacobi_b -1: the Jacobi recurrence divides "
        "by zero at k = 2, and order is 4; "
        "use order 1 or less, or a jacobi_a + jacobi_b that is not -2, -3 or -4",
        ("mixer.params.jacobi_a=-1", "mixer.params.jacobi_b=-0.5"),
    ),
    "a basis without jacobi_a": (
        ("mixer.params.basis=legendre", "mixer.params.jacobi_a=0.5"),
        "mixer.params: jacobi_a 0.5 has no effect with basis legendre: leave it at "
        "1.0, or use basis jacobi",
        ("mixer.params.basis=jacobi", "mixer.params.jacobi_a=0.5"),
    ),
    "tokens for a backbone of series": (
        ("dataset=words", "backbone=series-only"),
        "backbone.name: got 'series-only', which takes 'series', does not fit "
        "dataset 'words', of 'tokens'",
        ("dataset=words", "backbone=encoder"),
    ),
    "a task for another backbone": (
        ("dataset=stories", "task=summarisation"),
        "backbone.name: got 'encoder', which serves targets 'class' or 'positions' "
        "or 'values' or 'multilabel', does "
        "not fit task 'summarisation' on dataset 'stories', of 'sequence'",
        ("task=classification",),
    ),
    "a task for another data set": (
        ("dataset=stories",),
        "task.name: got 'classification', which takes targets 'class' or "
        "'positions' or 'pair', does not fit dataset "
        "'stories', which gives 'sequence'",
        ("dataset=words",),
    ),
    "a decoder that sees the future": (
        ("dataset=any", "task=any", "backbone=decoder"),
        "mixer.name: got 'agf', which sees later positions, does not fit backbone "
        "'decoder', a decoder, which must "
        "not; use a mixer that is causal (`subquad list mixers`)",
        ("dataset=any", "task=any", "backbone=decoder", "mixer=causal"),
    ),
    "computing twice what keeps state": (
        ("mixer=counter", "train.activation_checkpointing=true"),
        "train.activation_checkpointing: got true, computes blocks twice, and "
        "mixer 'counter' keeps state between "
        "calls; use false",
        ("mixer=counter",),
    ),
    "trimming under a head that divides by the padded length": (
        (BUCKETS, "backbone.params.head=mean_padded"),
        "train.bucket_batches: got 8, trims padding, and backbone 'encoder' "
        "depends on padding: head mean_padded "
        "divides by the padded length; use head mean, or train.bucket_batches 0",
        (BUCKETS, "backbone.params.head=mean"),
    ),
    "trimming under a head with weights for padding": (
        (BUCKETS, "backbone.params.head=flatten"),
        "train.bucket_batches: got 8, trims padding, and backbone 'encoder' "
        "depends on padding: head flatten has "
        "weights for each padded position; use head mean, or train.bucket_batches 0",
        (BUCKETS, "backbone.params.head=cls"),
    ),
    "trimming where mixers see padding": (
        (BUCKETS, "backbone.params.mask_mixer=false"),
        "train.bucket_batches: got 8, trims padding, and backbone 'encoder' "
        "depends on padding: mask_mixer false lets "
        "mixers see padding; use mask_mixer true, or train.bucket_batches 0",
        (BUCKETS, "backbone.params.mask_mixer=true"),
    ),
    "trimming with a mixer that depends on padding": (
        (BUCKETS, "mixer.params.mask_padding=false"),
        "train.bucket_batches: got 8, trims padding, and mixer 'agf' with these "
        "parameters does not claim to be "
        "padding invariant; use 0, or a mixer that does (`subquad show mixer NAME` "
        "lists its facts)",
        (BUCKETS, "mixer.params.mask_padding=true"),
    ),
    "trimming with a backbone that does not say": (
        (BUCKETS, "dataset=any", "task=any", "backbone=series-only"),
        "train.bucket_batches: got 8, trims padding, and backbone 'series-only' "
        "does not say whether it minds "
        "(BackboneConfig.padding_reason); use 0",
        ("dataset=any", "task=any", "backbone=series-only"),
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_combination_is_refused_and_the_advice_works(refused, loaded, base_text, row):
    overrides, message, mended = row
    assert refused(base_text, *overrides).split(": ", 1)[1] == message
    assert loaded(base_text, *mended).runs


def test_there_are_thirty_combinations():
    assert len(ROWS) >= 30


def test_the_line_of_the_file_is_named_where_the_file_is_wrong(refused, base_text):
    text = base_text.replace("epochs: 20", "steps: 100") + "  warmup_steps: 200\n"
    assert refused(text) == (
        "exp.yaml:10: train.warmup_steps: got 200, must be < train.steps (100); use at most 99"
    )


def test_the_override_is_named_where_it_made_the_file_wrong(refused, base_text):
    assert refused(base_text, "resources.workers=17").startswith(
        "override 'resources.workers=17': train.batch_size: got 16"
    )


@pytest.mark.parametrize("precision", ["fp64", "fp32", "bf16", "fp16"])
def test_every_precision_works_on_the_cpu(loaded, base_text, precision):
    assert (
        loaded(base_text, f"train.precision={precision}").runs[0].experiment.train.precision
        == precision
    )


def test_defaults_break_no_rule(loaded, base_text):
    assert loaded(base_text, "train={epochs: 1}").runs
    assert loaded(base_text, "train={steps: 1}", "protocol=fixed").runs
