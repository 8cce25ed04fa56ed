"""Requests to model endpoints of four protocols: keys, proxies, classified retries, and what is known of an outage.

Shared by the agents' models and the answer judge; it knows neither.
"""
