"""Answers to what administrators ask and change."""
