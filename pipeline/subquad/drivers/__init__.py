"""Drivers: start ranks, hand them runs, watch over both."""
