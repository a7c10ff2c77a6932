"""The testbed: a real multi-node Kubernetes on one Linux machine, without containers around it."""
