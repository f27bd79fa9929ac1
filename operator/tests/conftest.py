"""Tests of the operator are silent: what it logs is checked nowhere and costs time."""

import logging

import structlog

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
