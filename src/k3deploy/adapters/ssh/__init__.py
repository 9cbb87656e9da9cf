"""SSH to the nodes with paramiko: one kept-alive connection each, strict host keys, a deadline on every wait.

Importing this package loads no paramiko: that costs more than all the rest of the program's start.
"""

from k3deploy.adapters.ssh.pool import SshNodes

__all__ = ["SshNodes"]
