"""Figures for explanations, reports and the paper."""
