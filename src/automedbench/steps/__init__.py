"""Steps of the workflow: one module per rule, with the rule's name."""
