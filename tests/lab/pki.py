"""The few keys of a control plane on one machine, made by openssl.

Clients identify themselves by tokens; only towards a kubelet the API server has to have a certificate.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


def _openssl(*words: str | Path, text: str = "") -> None:
    result = subprocess.run(["openssl", *map(str, words)], input=text, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"openssl {words[0]}: {result.stderr.strip()}")


def make_authority(folder: Path) -> None:
    """ca.key and ca.crt, with the key identifiers that Python 3.13's strict check wants."""
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", folder / "ca.key")
    extensions = ("-addext", "keyUsage=critical,keyCertSign,cRLSign", "-addext", "subjectKeyIdentifier=hash")
    _openssl(
        "req",
        "-x509",
        "-new",
        "-key",
        folder / "ca.key",
        "-subj",
        "/CN=lab",
        "-days",
        "30",
        *extensions,
        "-out",
        folder / "ca.crt",
    )


def make_server(folder: Path, name: str, addresses: Sequence[str]) -> None:
    """NAME.key and NAME.crt of a server, signed by the authority in the folder. Addresses are `IP:...` and `DNS:...`."""
    _make_signed(folder, name, f"/CN={name}", f"subjectAltName={','.join(addresses)}\nextendedKeyUsage=serverAuth\n")


def make_client(folder: Path, name: str, user: str, group: str) -> None:
    """NAME.key and NAME.crt of a client, whom the servers take for this user of this group."""
    _make_signed(folder, name, f"/O={group}/CN={user}", "extendedKeyUsage=clientAuth\n")


def _make_signed(folder: Path, name: str, subject: str, usage: str) -> None:
    key, request, extensions = folder / f"{name}.key", folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text(f"{usage}basicConstraints=CA:FALSE\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n")
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
    _openssl("req", "-new", "-key", key, "-subj", subject, "-out", request)
    signing = ("-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial", "-days", "30")
    _openssl("x509", "-req", "-in", request, *signing, "-extfile", extensions, "-out", folder / f"{name}.crt")


def make_signing_pair(folder: Path) -> None:
    """sa.key and sa.pub, with which ServiceAccount tokens are signed and checked."""
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", folder / "sa.key")
    _openssl("ec", "-in", folder / "sa.key", "-pubout", "-out", folder / "sa.pub")
