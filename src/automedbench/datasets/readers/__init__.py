"""Readers by form of data, never by data set.

Each is a module with ``read(raw, card)`` that turns raw files into typed source records (``datasets.forms``). Adding
one is adding a module here: ``staging.reader`` of a card names it.
"""
