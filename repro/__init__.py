"""Makes the gTop-k paper (Shi et al., ICDCS 2019, arXiv:1901.04359) repeatable."""
