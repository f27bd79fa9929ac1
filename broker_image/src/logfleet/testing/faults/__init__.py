"""Faults: wrong answers, late answers and lost ones, given by the code that serves clients.

They stand around the handlers of a broker that a test has started; a broker that is started
otherwise has none of this.
"""
