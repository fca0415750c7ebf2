"""Certificates: what is in them, who may read them, and the lines that use them."""

from __future__ import annotations

import ipaddress
import ssl
import stat
import tomllib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from subbit.cli.entry import app
from subbit.config.resolve import resolve
from subbit.core.errors import ConfigError, RunFolderError
from subbit.flower.certs import create_certificates, is_loopback
from subbit.flower.deployment import deployment_settings
from subbit.flower.lines import check_address, write_app


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates") / "keys"
    create_certificates(folder, ["server.example.org", "192.0.2.7"], 2)
    return folder


def test_the_server_certificate_names_its_hosts_and_is_signed(keys: Path) -> None:
    authority, server = (
        x509.load_pem_x509_certificate((keys / name).read_bytes()) for name in ("ca.crt", "server.pem")
    )
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "server.example.org"]
    assert names.get_values_for_type(x509.IPAddress) == list(map(ipaddress.ip_address, ["127.0.0.1", "192.0.2.7"]))
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(keys / "server.pem", keys / "server.key")


def test_private_files_are_private(keys: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [keys, *keys.rglob("*")]}
    for name in ("ca.key", "server.key", "node-0", "node-1"):
        assert modes[name] == 0o600, name
    assert modes["keys"] == modes["nodes"] == 0o700


def test_node_keys_are_pairs_as_flower_reads_them(keys: Path) -> None:
    private = serialization.load_ssh_private_key((keys / "nodes/node-1").read_bytes(), None)
    public = serialization.load_ssh_public_key((keys / "nodes/node-1.pub").read_bytes())
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert private.curve.name == "secp384r1"
    assert private.public_key() == public


def test_nothing_is_overwritten(keys: Path) -> None:
    before = (keys / "ca.key").read_bytes()
    with pytest.raises(RunFolderError, match="never overwritten"):
        create_certificates(keys, [], 1)
    assert (keys / "ca.key").read_bytes() == before


@pytest.mark.parametrize("host", ["server:8000", "https://server", "", "-x", "a b", "a" * 300])
def test_a_host_is_a_name_or_an_address(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="host"):
        create_certificates(tmp_path / "keys", [host], 1)
    assert not (tmp_path / "keys").exists()


def test_no_insecure_lines_for_another_machine() -> None:
    for host in ("localhost", "127.0.0.1", "::1", "127.1.2.3"):
        assert is_loopback(host)
        check_address(host)
    for host in ("server.example.org", "192.0.2.7", "0.0.0.0", "localhost.example.org"):
        with pytest.raises(ConfigError, match="not this machine"):
            check_address(host)
    runner = CliRunner()
    refused = runner.invoke(app, ["flower", "lines", "--host", "192.0.2.7"])
    assert isinstance(refused.exception, ConfigError)
    told = runner.invoke(app, ["flower", "lines", "--host", "192.0.2.7", "--insecure"])
    assert "flower-superlink --host 0.0.0.0 --port 8000" in told.stdout


def test_the_printed_lines_name_every_file_that_was_made(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    done = CliRunner().invoke(app, ["flower", "certs", str(folder), "--host", "server.example.org", "--nodes", "2"])
    assert done.exit_code == 0, done.output
    text = done.stdout.replace("\n", " ")
    for name in ("ca.crt", "server.pem", "server.key", "nodes/node-0", "nodes/node-1.pub"):
        assert str(folder / name) in text
    assert "--insecure" not in text
    assert 'address = "server.example.org:8000"' in text
    assert "ca.key" not in text, "the authority's key has no business in any line"


def test_the_app_has_every_key_and_gives_the_same_settings_back(tmp_path: Path) -> None:
    settings = resolve({"method": "deltamask", "rounds": 3, "kappa": 0.5, "preset": "paper"})
    write_app(tmp_path / "app", settings)
    project = tomllib.loads((tmp_path / "app/pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert project["components"]["serverapp"] == "subbit.flower:server_app"
    again = deployment_settings(project["config"])
    assert again.run.engine == "deployment"
    assert (again.run.rounds, again.parameters) == (3, settings.parameters)
    with pytest.raises(ConfigError, match="unknown key 'ronds'"):
        deployment_settings({"ronds": 3})
    assert deployment_settings({"deltamask.kappa": 0.25}).parameters.up.kappa == 0.25
    assert deployment_settings({"deltamask.up.kappa": 0.25}).parameters.up.kappa == 0.25
