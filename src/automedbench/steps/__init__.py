"""Steps of the workflow: one module per rule, with the rule's name.

Each has one function of that name. It takes the campaign's record (``<results>/campaign.json``) and what it works on
(a data set, a task or the folder of a run), finds its settings and files there, and writes what its rule promises.
"""
