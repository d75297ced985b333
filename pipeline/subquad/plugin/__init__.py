"""The light half of the plugin contract: what a plugin *says* about itself. Imports neither torch
nor a data library.

An entry point resolves to one of the four descriptors below, or, for a mixer in a single file,
directly to a `subquad.nn.TokenMixer` or `subquad.nn.AttentionCore` subclass that carries `Config`
and `facts` itself. The heavy half (what a plugin *does*) is in `subquad.nn` (mixers, backbones,
tasks) and `subquad.data` (datasets).

Data set, task and backbone fit by two words that they share: the data set's `inputs`, one of those
the backbone takes, and a target that all three know. Both are open: any word that its plugins agree
on will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, ClassVar, Literal, Self

from subquad.plugin.config import Config as Config
from subquad.plugin.config import Misfit as Misfit
from subquad.plugin.config import Range as Range
from subquad.plugin.config import inherited as inherited
from subquad.plugin.config import param as param
from subquad.plugin.effect import Not as Not
from subquad.plugin.effect import When as When
from subquad.plugin.metric import Metric, Mode, metric_of

API_VERSION = 1
"""Version of the plugin contract. A plugin states the one it was written for; another one is
refused by name.
"""

Complexity = Literal["L", "L log L", "L^1.5", "L^2"]
Role = Literal["self", "cross", "decoder"]


class MixerConfig(Config):
    """Base of a mixer's parameters; override `check` for limits that depend on where the mixer
    stands.
    """

    def check(self, site: Site) -> None:
        """Raise ValueError, in one line naming the keys, where these parameters cannot work at this
        `site`.

        Called before anything heavy starts. `site.max_len` is 0 while the length is not known yet.
        """

    def at(self, site: Site) -> Self:
        """These parameters at a `site`, with defaults that follow it filled in."""
        return self

    def narrow(self, facts: Facts) -> Facts:
        """The facts of a mixer with these parameters, where they differ from what the plugin
        says in general.
        """
        return facts


class DatasetConfig(Config):
    """Base of a data set's parameters.

    Where one plugin holds several data sets, `label` says what tables call each: a static method
    that takes the parameters which name them, as in `label(problem: str) -> str`. In a study whose
    data sets are an axis, these cannot be overridden.
    """

    label: ClassVar[Callable[..., str]] = staticmethod(lambda: "")

    @classmethod
    def __pydantic_init_subclass__(cls, **more: Any) -> None:
        super().__pydantic_init_subclass__(**more)
        for name in cls.named_by():
            if name not in cls.model_fields:
                raise TypeError(
                    f"{cls.__module__}.{cls.__name__}: label takes {name!r}, which is no parameter "
                    "of the data set"
                )

    @classmethod
    def named_by(cls) -> tuple[str, ...]:
        """The parameters that the label is made of."""
        return tuple(signature(cls.label).parameters)


class BackboneConfig(Config):
    """Base of a backbone's parameters; override `padding_reason` where padding has no influence."""

    def padding_reason(self) -> str | None:
        """Why outputs depend on how much padding follows the real tokens, and which parameters to
        use instead.

        "" where they do not, given mixers that are padding invariant: `train.bucket_batches` may
        then trim batches. None, the default: not said, and trimming is refused.
        """
        return None


class AttentionConfig(MixerConfig):
    """Base of an attention core's parameters: adds those of the projections around every core.

    They have the same names and shapes for every core, so that a softmax model's weights load into
    any of them.
    """

    bias: bool = param(True, meaning="bias of the query, key, value and output projections")
    qk_norm: Literal["none", "layer", "rms"] = param(
        "none", meaning="norm of each head's queries and keys, with a learned scale"
    )
    rotary: bool = param(
        False, meaning="rotate queries and keys by their position among the real tokens (RoPE)"
    )

    def check(self, site: Site) -> None:
        super().check(site)
        if self.rotary and site.head_dim % 2:
            raise ValueError(
                f"rotary needs an even head width, got {site.dim} / "
                f"{site.num_heads} = {site.head_dim}"
            )

    def narrow(self, facts: Facts) -> Facts:
        facts = super().narrow(facts)
        return replace(facts, permutation_equivariant=None) if self.rotary else facts


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where one mixer stands in a network; everything it may know when it is built.

    Attributes:
        dim: model width D.
        num_heads: heads H; `dim` is divisible by it.
        max_len: longest sequence the mixer will meet, prefix tokens included; 0 while not known.
        layer_index: 0 for the first layer.
        num_layers: layers of the stack it stands in.
        context_len: longest other sequence that one of role "cross" will meet; 0 while not known,
            and for others.
        role: "self" mixes one sequence, "decoder" does so in a decoder, "cross" lets one sequence
            see another.
        causal: position t may only see positions <= t. Fixed here, never per call.
        num_prefix_tokens: class and register tokens in front of the sequence.
        grid: (height, width) of image patches, None for sequences.
        seed: for mixers that draw fixed random features or indices when built.
    """

    dim: int
    num_heads: int = 1
    max_len: int = 0
    layer_index: int = 0
    num_layers: int = 1
    context_len: int = 0
    role: Role = "self"
    causal: bool = False
    num_prefix_tokens: int = 0
    grid: tuple[int, int] | None = None
    seed: int = 0

    @property
    def head_dim(self) -> int:
        """Width of one head, E = D / H."""
        return self.dim // self.num_heads

    @property
    def is_last(self) -> bool:
        """Whether this is the last layer: a mixer that hands a carry on builds no tail there."""
        return self.layer_index == self.num_layers - 1


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a mixer claims; `subquad check` proves it.

    Attributes:
        causal: "never", "optional" (built causal when the site asks) or "always".
        padding_invariant: outputs at real tokens do not depend on how much padding stands before or
            after them, or what is in it.
        permutation_equivariant: permuting the tokens permutes the outputs; None: nothing is
            claimed.
        cross: can let one sequence see another, of any length: see `subquad.nn.TokenMixer.memory`.
        max_length: None when any length works, "site" when bound to `Site.max_len`, or a number.
        couples_samples: the samples of a batch change each other's outputs, so that settings which
            say how many are computed at once decide numbers: `eval_batch_size`, `micro_batch` and
            `workers`.
        stateful: keeps state over calls (must be declared in buffers, so that checkpoints hold it).
        complexity: growth of time and memory in the sequence length L, the larger of the two; None:
            nothing is claimed.
        leak: what must have no influence (later positions, padding, other samples) may change a
            float64 output by this much, relative to the largest output. 0: not at all, bit for bit.
            FFTs mix rounding errors: about 1e-12.
    """

    causal: Literal["never", "optional", "always"] = "never"
    padding_invariant: bool = False
    permutation_equivariant: bool | None = None
    cross: bool = False
    max_length: int | Literal["site"] | None = None
    couples_samples: bool = False
    stateful: bool = False
    complexity: Complexity | None = "L"
    leak: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """What every descriptor carries.

    Attributes:
        config: the parameter schema, a `Config` subclass.
        build: "module:attribute" of the class that does the work, imported only when it is needed;
            or the class.
        summary: one line for `subquad list`.
        paper: author, year, title or a URL; "" when there is none.
        api: the plugin API this was written for.
    """

    config: type[Config]
    build: Any
    summary: str
    paper: str = ""
    api: int = API_VERSION


@dataclass(frozen=True, kw_only=True)
class Published:
    """A mixer's published form, written plainly from its formulas: what `subquad bench mixers`
    times beside the mixer.

    Attributes:
        build: "module:attribute" of a class like the mixer's: the same parameters, weights, outputs
            and losses.
        over_attention: time of the authors' code over that of torch's attention, forward and
            backward, by length: measured on the CPU in float32 at width 128 with 2 heads. `subquad
            bench mixers` measures `build` there, and prints no ratio over it where the two are more
            than 15 % apart.
        params: the parameters they were measured with.
    """

    build: str
    over_attention: Mapping[int, float] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MixerPlugin(Plugin):
    """A token mixer; `build` names a `subquad.nn.TokenMixer` or `AttentionCore` taking `(config,
    site)`.

    Attributes:
        facts: what it claims, with any parameters; `MixerConfig.narrow` says more for given ones.
        variants: parameters by name that `subquad check` tries besides the defaults: one for each
            way it can work.
        published: its published form, for comparisons of speed; None where there is none.
    """

    facts: Facts = field(default_factory=Facts)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    published: Published | None = None

    def facts_of(self, config: Config) -> Facts:
        """The facts of a mixer with these parameters."""
        return config.narrow(self.facts) if isinstance(config, MixerConfig) else self.facts


@dataclass(frozen=True, kw_only=True)
class BackbonePlugin(Plugin):
    """A network around mixers; `build` names a `subquad.nn.Backbone` taking `(config, context)`.

    Attributes:
        inputs: what it reads: "series", "tokens", "images", ...
        targets: what its outputs can be trained for: "class", "positions", "pair", "next-token",
            "sequence", ...
        causal: its mixers must see no later position.
    """

    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    causal: bool = False


@dataclass(frozen=True, kw_only=True)
class TaskPlugin(Plugin):
    """Loss and metrics; `build` names a `subquad.nn.Task` taking `(config, spec)`.

    Attributes:
        targets: what it can make a loss of: any of these that data set and backbone share.
        reports: its metrics by name, and how each is printed. Tables show those of the test split
            in this order, and compare the first.
        selects: the metric of the validation split that selects checkpoints; "" for the one that is
            compared.
    """

    targets: tuple[str, ...]
    reports: Mapping[str, Metric]
    selects: str = ""

    def __post_init__(self) -> None:
        if fault := _reports_fault(self.reports, self.selects):
            raise TypeError(fault)

    @property
    def tested(self) -> tuple[str, ...]:
        """Names of the metrics of the test split in tables; the first is compared."""
        return tuple(name for name, metric in self.reports.items() if metric.in_tables)

    @property
    def metric(self) -> str:
        """The name of the metric that selects checkpoints."""
        return self.selects or self.tested[0]

    @property
    def mode(self) -> Mode:
        """Whether the "max" or the "min" of it is best."""
        return self.reports[self.metric].mode

    def shown(self, name: str) -> Metric:
        """How a metric is printed."""
        return metric_of(self.reports, name)


def _reports_fault(reports: Any, selects: str) -> str:
    """Why a task's metrics cannot be these; "" where they can."""
    example = """such as {"accuracy": Metric(unit="%")}"""
    if not isinstance(reports, Mapping) or not all(
        isinstance(metric, Metric) for metric in reports.values()
    ):
        return f"reports: must be a mapping of names to subquad.plugin.Metric, {example}"
    tables = [
        metric_of(reports, name).with_unit for name, metric in reports.items() if metric.in_tables
    ]
    if not tables:
        return f"reports: tables need one at least, {example}"
    if len(set(tables)) < len(tables):
        return f"reports: two have one label in tables: {', '.join(tables)}"
    if selects and selects not in reports:
        return f"selects: got {selects!r}, must be one of reports: {', '.join(reports)}"
    return ""


@dataclass(frozen=True, kw_only=True)
class DatasetPlugin(Plugin):
    """A data set; `build` names a `subquad.data.Dataset` taking `(config, root)`.

    Attributes:
        inputs: "series" (float channels), "tokens" (integer ids), "images", or a word of its own.
        targets: what can be learnt from it: "class" (of a sequence), "positions" (a class for each
            position), "pair" (a class for two sequences), "next-token" (the token after each),
            "sequence" (another sequence), or others.
        from_python: "module:function" of one that reads a user's files. The function takes
            `(data, root)`: what a caller of the Python interface gives as data, and the folder for
            prepared data. It writes them as such files, once for each content, and returns
            `(path, names)`: what `dataset.params.path` becomes, and for each file written what
            messages call it. It raises `DataError` for what it cannot write. "" for the others.
    """

    inputs: str
    targets: tuple[str, ...]
    from_python: str = ""

    @property
    def named_by(self) -> tuple[str, ...]:
        """The parameters that its label is made of."""
        return self.config.named_by() if issubclass(self.config, DatasetConfig) else ()

    def label(self, config: Config) -> str:
        """What tables call the data set with these parameters; "" for the plugin's name."""
        if not isinstance(config, DatasetConfig):
            return ""
        return config.label(**{name: getattr(config, name) for name in config.named_by()})
