"""Requests to OpenAI-compatible endpoints: keys, proxies, classified retries, and what is known of an outage.

Shared by the agents' models and the answer judge; it knows neither.
"""
