"""An attention core: linear attention, whose memory of another sequence is one E x E matrix.

Reference: Katharopoulos et al. 2020, Transformers are RNNs, Eq. 5; there phi = elu + 1.
"""

from subquad.nn import AttentionCore
from subquad.plugin import AttentionConfig, Facts, param


class LinearAttention(AttentionCore):
    """Attention without softmax: phi(q) (phi(k)^T v), phi = exp."""

    class Config(AttentionConfig):
        eps: float = param(1e-6, meaning="added to the sum of weights", gt=0)

    facts = Facts(padding_invariant=True, permutation_equivariant=True, cross=True, complexity="L")

    def __init__(self, config, site):
        super().__init__()
        self.eps, self.cross = config.eps, site.role == "cross"

    def forward(self, q, k, v, *, query_keep=None, key_keep=None):
        return self.read(q, self.memory(k, v, keep=key_keep))

    @property
    def caches(self):
        return self.cross

    def memory(self, k, v, *, keep=None):
        if keep is not None:
            k = k.masked_fill(~keep[:, None, :, None], float("-inf"))
        k = k.exp()
        return {"state": k.mT @ v, "total": k.sum(2)}

    def read(self, q, memory, *, keep=None):
        q = q.exp()
        total = (q * memory["total"][:, :, None]).sum(-1, keepdim=True)
        return q @ memory["state"] / (total + self.eps)
