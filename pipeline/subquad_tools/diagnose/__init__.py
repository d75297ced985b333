"""The spectral passport of a model: what its mixers do to frequencies, and how alike its tokens
become.
"""
