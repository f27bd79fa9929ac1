"""Figures of topics and groups that no single request reports: sizes, rates, lags."""
