"""Configuration: what may be said, where, and who wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorfold.config import ConfigFile, Flags, ServeConfig, core_table, find_file, load_config, read_file
from tensorfold.contracts.settings import Setting, SettingsTable
from tensorfold.errors import ConfigError

KEYS = SettingsTable(
    "auth.keys",
    (
        Setting(name="api_key", type="strs", help="Keys.", flag="--api-key", toml=False, secret=True),
        Setting(name="environment", type="strs", help="Keys.", env="TENSORFOLD_API_KEY", toml=False, secret=True),
        Setting(name="file", type="path", help="A file of keys.", flag="--api-key-file"),
        Setting(name="tries", type="int", help="Tries.", default=3),
    ),
)


@pytest.fixture
def toml(tmp_path: Path) -> ConfigFile:
    """A file that sets one value of every type."""
    path = tmp_path / "tensorfold.toml"
    path.write_text(
        """
        port = 9000
        decode_share = 1
        metrics_open = true
        served_name = "mine"
        alias = ["a", "b"]
        [auth.keys]
        file = "keys.txt"
        """
    )
    return read_file(path)


def load(
    file: ConfigFile | None = None, environment: dict[str, str] | None = None, flags: Flags | None = None
) -> ServeConfig:
    """A configuration with the tables of one plugin."""
    return load_config((KEYS,), file, environment or {}, flags or {})


@pytest.mark.requirement("T-001")
def test_without_a_word_the_server_listens_on_the_loopback_address_port_8080() -> None:
    """Without flags the server listens on 127.0.0.1 port 8080."""
    config = load()
    assert (config.host, config.port) == ("127.0.0.1", 8080)
    assert config.origins["port"] == "default"


def test_a_file_sets_values_of_every_type_and_is_named_as_their_origin(toml: ConfigFile) -> None:
    config = load(toml)
    assert (config.port, config.decode_share, config.metrics_open) == (9000, 1.0, True)
    assert (config.served_name, config.alias) == ("mine", ("a", "b"))
    assert config.settings.table("auth.keys")["tries"] == 3
    assert config.origins["port"] == config.origins["auth.keys.file"] == "tensorfold.toml"


def test_a_path_in_a_file_starts_at_the_files_folder(toml: ConfigFile) -> None:
    assert load(toml).settings.table("auth.keys")["file"] == toml.path.parent / "keys.txt"


def test_a_model_in_a_file_may_be_a_path_from_the_files_folder_or_a_name(tmp_path: Path) -> None:
    path = tmp_path / "tensorfold.toml"
    path.write_text("model = 'qwen'")
    assert load(read_file(path)).model == "qwen"
    (tmp_path / "qwen").mkdir()
    assert load(read_file(path)).model == str(tmp_path / "qwen")
    assert load(read_file(path), {"TENSORFOLD_MODEL": "qwen"}).model == "qwen"


def test_the_environment_beats_the_file_and_a_flag_beats_both(toml: ConfigFile) -> None:
    environment = {"TENSORFOLD_PORT": "9001", "TENSORFOLD_ALIAS": "c, d,", "TENSORFOLD_SERVED_NAME": ""}
    config = load(toml, environment)
    assert (config.port, config.alias, config.served_name) == (9001, ("c", "d"), "mine")
    assert config.origins["port"] == "TENSORFOLD_PORT"
    config = load(toml, environment, {("", "port"): "9002", ("", "metrics_open"): False, ("", "alias"): ("e",)})
    assert (config.port, config.metrics_open, config.alias) == (9002, False, ("e",))
    assert config.origins["port"] == "--port"


def test_lists_of_different_sources_that_must_add_up_are_settings_of_their_own() -> None:
    config = load(None, {"TENSORFOLD_API_KEY": "x,y"}, {("auth.keys", "api_key"): ("z",)})
    table = config.settings.table("auth.keys")
    assert (table["api_key"], table["environment"]) == (("z",), ("x", "y"))


@pytest.mark.parametrize("text", [",", " , ,", ",\n"])
def test_a_list_of_nothing_but_commas_is_refused(text: str) -> None:
    """A server whose keys got lost on the way would be open to everybody; an empty variable is as good as none."""
    with pytest.raises(ConfigError, match="TENSORFOLD_API_KEY is not shown, and must be a list of texts"):
        load(None, {"TENSORFOLD_API_KEY": text}, {})
    assert load(None, {"TENSORFOLD_API_KEY": ""}, {}) is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", "unknown key prot; did you mean port?"),
        ("[auth.keys]\nfiel = 'x'", "unknown key auth.keys.fiel; did you mean auth.keys.file?"),
        ("[auth.kyes]\nfile = 'x'", "unknown key auth.kyes; did you mean auth.keys?"),
        ("[auth]\nfile = 'x'", "unknown key auth.file"),
        ("port = '80'", "port is '80', and must be an integer"),
        ("port = true", "port is True, and must be an integer"),
        ("alias = 'a'", "alias is 'a', and must be a list of texts"),
        ("alias = [1]", "alias is [1], and must be a list of texts"),
        ("decode_share = nan", "decode_share is nan, and must be a number"),
        ("host = 1", "host is 1, and must be a text"),
        ("[auth.keys]\nfile = 1", "auth.keys.file is 1, and must be a path"),
        ("[auth.keys]\napi_key = ['x']", "auth.keys.api_key is a secret and may not stand in the file; use --api-key"),
        ("metrics_open = 'yes'", "metrics_open is 'yes', and must be true or false"),
        ("[auth]\nkeys = 3", "auth.keys is 3, and must be a table: [auth.keys]"),
    ],
)
def test_a_wrong_line_of_the_file_is_named_with_the_rule(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tensorfold.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(read_file(path))
    assert str(caught.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = 70000", "port is 70000, and must be between 0 and 65535"),
        ("log_level = 'verbos'", "log_level is 'verbos', and must be one of debug, info, warning, error"),
        ("idle_timeout = 0", "idle_timeout is 0, and must be at least 1"),
    ],
)
def test_a_value_of_the_file_that_is_out_of_its_bounds_is_named_with_its_key(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "tensorfold.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(read_file(path))
    assert str(caught.value) == f"tensorfold.toml: {message}"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PORT", "http", "TENSORFOLD_PORT is 'http', and must be an integer"),
        ("PORT", "70000", "TENSORFOLD_PORT is 70000, and must be between 0 and 65535"),
        ("METRICS_OPEN", "maybe", "TENSORFOLD_METRICS_OPEN is 'maybe', and must be true or false"),
        ("TEMPERATURE", "inf", "TENSORFOLD_TEMPERATURE is 'inf', and must be a number"),
        ("LOG_LEVEL", "loud", "TENSORFOLD_LOG_LEVEL is 'loud', and must be one of debug, info, warning, error"),
        ("PARALLEL", "0", "TENSORFOLD_PARALLEL is 0, and must be between 1 and 1024"),
        ("GRACE", "-1", "TENSORFOLD_GRACE is -1.0, and must be at least 0"),
    ],
)
def test_a_wrong_variable_is_named_with_the_rule(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {f"TENSORFOLD_{name}": value})
    assert str(caught.value) == message


def test_a_secret_is_never_shown_in_a_message() -> None:
    secret = SettingsTable("x", (Setting(name="code", type="int", help="A code.", env="CODE", secret=True),))
    with pytest.raises(ConfigError, match=r"^CODE is not shown, and must be an integer$"):
        load_config((secret,), None, {"CODE": "hunter2"}, {})


def test_a_variable_that_looks_misspelt_gives_a_warning_and_others_do_not() -> None:
    config = load(None, {"TENSORFOLD_PROT": "1", "TENSORFOLD_CLIENT_KEY": "x", "HOME": "/"})
    assert config.warnings == ("TENSORFOLD_PROT is no setting; did you mean TENSORFOLD_PORT?",)


def test_the_table_of_a_plugin_that_is_not_loaded_may_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tensorfold.toml"
    path.write_text("[dialects.toy]\nmount = '/toy'")
    with pytest.raises(ConfigError, match="unknown key dialects"):
        load_config((KEYS,), read_file(path), {}, {})
    load_config((KEYS,), read_file(path), {}, {}, unloaded={"dialects.toy"})


def test_the_file_is_the_one_named_else_the_one_in_the_folder(tmp_path: Path) -> None:
    assert find_file(None, {}, tmp_path) is None
    usual = tmp_path / "tensorfold.toml"
    usual.touch()
    assert find_file(None, {}, tmp_path) == usual
    assert find_file(None, {"TENSORFOLD_CONFIG": "other.toml"}, tmp_path) == Path("other.toml")
    assert find_file(Path("given.toml"), {"TENSORFOLD_CONFIG": "other.toml"}, tmp_path) == Path("given.toml")


@pytest.mark.parametrize(("content", "message"), [(None, "there is no"), (b"a =", "no TOML"), (b"\xff", "no TOML")])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        read_file(path)
    assert str(path) in str(caught.value)


def test_every_core_setting_has_a_help_sentence_a_variable_and_a_default_of_its_type() -> None:
    for setting in core_table().settings:
        assert setting.help.endswith(".")
        assert setting.env == f"TENSORFOLD_{setting.name.upper()}"
    assert load() == ServeConfig(settings=load().settings, origins=load().origins)


@pytest.mark.requirement("T-142")
def test_how_many_replies_run_at_once_is_a_number_or_left_to_the_server(tmp_path: Path) -> None:
    """`auto` unless it is said; the same words in file, variable and flag."""
    path = tmp_path / "tensorfold.toml"
    flags: Flags = {("", "parallel"): "auto"}
    assert load_config((), None, {}, {}).parallel == "auto"
    path.write_text('parallel = "auto"')
    assert load_config((), read_file(path), {}, {}).parallel == "auto"
    path.write_text("parallel = 3")
    assert load_config((), read_file(path), {}, {}).parallel == 3
    assert load_config((), read_file(path), {"TENSORFOLD_PARALLEL": "5"}, {}).parallel == 5
    assert load_config((), read_file(path), {"TENSORFOLD_PARALLEL": "5"}, flags).parallel == "auto"
    for wrong in ("0", "many", "1.5"):
        with pytest.raises(ConfigError, match="TENSORFOLD_PARALLEL"):
            load_config((), None, {"TENSORFOLD_PARALLEL": wrong}, {})


@pytest.mark.requirement("T-269")
def test_the_memory_reserve_is_at_least_two_gib() -> None:
    assert load_config((), None, {"TENSORFOLD_MEMORY_RESERVE_GIB": "2.5"}, {}).memory_reserve_gib == 2.5
    with pytest.raises(ConfigError, match="at least 2"):
        load_config((), None, {"TENSORFOLD_MEMORY_RESERVE_GIB": "1"}, {})
