"""Mathematics that several mixers share."""
