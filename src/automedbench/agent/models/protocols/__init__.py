"""Wire formats of model endpoints: one module for each protocol, towards the endpoint."""
