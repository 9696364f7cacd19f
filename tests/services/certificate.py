"""A certificate for 127.0.0.1 and the authority that signed it."""

import subprocess
from pathlib import Path

from tests.services.process import find_program

# Python 3.13 checks by the book: an authority must say so, and a server must name its authority.
_CONFIG = """
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = IP:127.0.0.1, DNS:localhost
"""


class Certificate:
    """Made anew in the given folder."""

    def __init__(self, folder: Path) -> None:
        self.ca_file = folder / "ca.crt"
        self.file = folder / "server.crt"
        self.key_file = folder / "server.key"
        self._config = folder / "openssl.cnf"
        self._config.write_text(_CONFIG)
        ca_key = folder / "ca.key"
        self._issue("authority", self.ca_file, ca_key)
        self._issue("server", self.file, self.key_file, "-CA", str(self.ca_file), "-CAkey", str(ca_key))

    def _issue(self, kind: str, file: Path, key_file: Path, *signer: str) -> None:
        openssl = find_program("openssl", "openssl")
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", str(key_file)]
        form = ["-config", str(self._config), "-extensions", kind, "-subj", f"/CN=onebus {kind}", "-days", "2"]
        command = [openssl, "req", "-x509", *form, *key, *signer, "-out", str(file)]
        subprocess.run(command, check=True, capture_output=True)
