"""k3deploy: from bare rented GPU nodes to a Kimi K3 endpoint that has proved it answers rightly."""

__version__ = "0.1.0"
