"""The loading rules, a test for each: what loads, what is left out, and what stops the program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tensorfold.errors import ConfigError, PluginConflict, PluginFailed, PluginNotFound
from tensorfold.plugins import Found, Plugins, PluginState, Wanted

Install = Callable[..., None]
Foreign = Callable[[], list[Found]]

GOOD = """
from tensorfold import hookimpl
from tensorfold.contracts.settings import SettingsTable

@hookimpl
def tensorfold_settings():
    yield SettingsTable(__name__, ())
"""


def state(plugins: Plugins, id: str) -> PluginState:
    """The state of the only plugin with this id."""
    (found,) = [each for each in plugins.states if f"{each.kind}/{each.name}" == id]
    return found


def tables(plugins: Plugins) -> list[str]:
    """The modules that answered, by the tables that they declare."""
    return [offered.value.name for offered in plugins.settings()]


def test_nothing_said_loads_all_installed_plugins_of_all_kinds(install: Install, foreign: Foreign) -> None:
    groups = {
        f"tensorfold.{kind}": {"acme": f"acme_{kind}"} for kind in ("models", "dialects", "backends", "auth", "extras")
    }
    install("acme", "1.2", groups, {f"acme_{kind.partition('.')[2]}": GOOD for kind in groups})
    plugins = Plugins(Wanted(), foreign())
    assert [each.kind for each in plugins.states] == ["auth", "backends", "dialects", "extras", "models"]
    assert {(each.state, each.reason, each.distribution, each.version) for each in plugins.states} == {
        ("loaded", "", "acme", "1.2")
    }
    assert tables(plugins) == ["acme_auth", "acme_backends", "acme_dialects", "acme_extras", "acme_models"]


def test_asking_for_one_dialect_imports_no_other(install: Install, foreign: Foreign) -> None:
    install(
        "acme",
        "1",
        {"tensorfold.dialects": {"acme": "acme_one", "zeta": "zeta_two"}, "tensorfold.auth": {"acme": "acme_auth"}},
        {"acme_one": GOOD, "zeta_two": "raise RuntimeError('imported')", "acme_auth": GOOD},
    )
    plugins = Plugins(Wanted(dialects=("acme",)), foreign())
    assert tables(plugins) == ["acme_auth", "acme_one"]
    assert "zeta_two" not in sys.modules
    assert state(plugins, "dialects/zeta").state == "disabled"
    assert state(plugins, "dialects/zeta").reason == "not among --dialect acme"


def test_asking_for_a_backend_imports_no_other(install: Install, foreign: Foreign) -> None:
    install("acme", "1", {"tensorfold.backends": {"acme": "acme_one", "zeta": "zeta_two"}}, {"acme_one": GOOD})
    plugins = Plugins(Wanted(backend="acme"), foreign())
    assert "zeta_two" not in sys.modules
    assert state(plugins, "backends/zeta").reason == "--backend acme was asked for"


def test_a_dialect_of_the_optional_group_is_off_until_it_is_asked_for(install: Install, foreign: Foreign) -> None:
    install(
        "acme",
        "1",
        {"tensorfold.dialects": {"acme": "acme_one"}, "tensorfold.dialects.optional": {"admin": "acme_admin"}},
        {"acme_one": GOOD, "acme_admin": GOOD},
    )
    plugins = Plugins(Wanted(), foreign())
    assert "acme_admin" not in sys.modules
    assert state(plugins, "dialects/admin").reason == "off by default: --plugin dialects/admin turns it on"
    assert tables(Plugins(Wanted(plugins=("dialects/admin",)), foreign())) == ["acme_one", "acme_admin"]
    assert tables(Plugins(Wanted(dialects=("admin",)), foreign())) == ["acme_admin"]


def test_a_module_is_added_by_its_name(install: Install, foreign: Foreign) -> None:
    install("acme", "1", {}, {"acme_loose": GOOD})
    plugins = Plugins(Wanted(plugins=("acme_loose",)), foreign())
    assert tables(plugins) == ["acme_loose"]
    assert state(plugins, "extras/acme_loose").distribution == "acme_loose"


def test_a_file_is_added_without_an_edit_of_the_module_path(tmp_path: Path, foreign: Foreign) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        GOOD + "\nfrom dataclasses import dataclass\n\n@dataclass\nclass Later:\n    mine: 'Later | None' = None\n"
    )
    path = list(sys.path)
    plugins = Plugins(Wanted(plugins=(str(file),)), foreign())
    assert sys.path == path
    assert "mine" not in sys.modules
    assert len(tables(plugins)) == 1
    assert state(plugins, "extras/mine").distribution == str(file)


def test_a_module_that_is_installed_already_loads_once(install: Install, foreign: Foreign) -> None:
    install("acme", "1", {"tensorfold.auth": {"acme": "acme_auth"}}, {"acme_auth": GOOD})
    plugins = Plugins(Wanted(plugins=("acme_auth",)), foreign())
    assert [f"{each.kind}/{each.name}" for each in plugins.states] == ["auth/acme"]


def test_a_blocked_plugin_is_not_imported(install: Install, foreign: Foreign) -> None:
    install("acme", "1", {"tensorfold.auth": {"acme": "acme_auth"}}, {"acme_auth": GOOD})
    plugins = Plugins(Wanted(plugins=("no:auth/acme",)), foreign())
    assert "acme_auth" not in sys.modules
    assert state(plugins, "auth/acme").reason == "blocked by --plugin no:auth/acme"


def test_asking_for_and_blocking_one_plugin_is_refused(install: Install, foreign: Foreign) -> None:
    install("acme", "1", {"tensorfold.dialects": {"acme": "acme_one"}}, {"acme_one": GOOD})
    with pytest.raises(ConfigError, match="dialects/acme is asked for and blocked"):
        Plugins(Wanted(dialects=("acme",), plugins=("no:dialects/acme",)), foreign())


@pytest.mark.parametrize(
    ("wanted", "id", "there"),
    [
        (Wanted(dialects=("acem",)), "dialects/acem", "is dialects/acme"),
        (Wanted(backend="acem"), "backends/acem", "are none of its kind"),
        (Wanted(plugins=("no:auth/acem",)), "auth/acem", "are auth/acme, auth/other"),
        (Wanted(plugins=("models/acem",)), "models/acem", "are none of its kind"),
    ],
)
def test_a_misspelt_name_stops_and_lists_what_there_is_of_its_kind(
    install: Install, foreign: Foreign, wanted: Wanted, id: str, there: str
) -> None:
    auth = {"acme": "acme_auth", "other": "acme_other"}
    install("acme", "1", {"tensorfold.dialects": {"acme": "acme_one"}, "tensorfold.auth": auth})
    with pytest.raises(PluginNotFound, match=f"^no plugin {id}; there {there}$"):
        Plugins(wanted, foreign())


@pytest.mark.parametrize("text", ["no:", "no:acme", "no:flavours/acme", "", " "])
def test_a_plugin_option_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"no:KIND/NAME"):
        Wanted(plugins=(text,))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import a_module_that_is_not_there", "ModuleNotFoundError: No module named 'a_module_that_is_not_there'"),
        ("raise ValueError('no such luck')", "ValueError: no such luck"),
        ("def broken(:", "SyntaxError"),
        ("import sys; sys.exit('bye')", "SystemExit: bye"),
    ],
)
def test_a_plugin_that_nobody_asked_for_and_fails_is_left_out(
    install: Install, foreign: Foreign, source: str, reason: str
) -> None:
    groups = {"tensorfold.models": {"acme": "acme_model"}, "tensorfold.auth": {"acme": "acme_auth"}}
    install("acme", "1", groups, {"acme_model": source, "acme_auth": GOOD})
    plugins = Plugins(Wanted(), foreign())
    assert state(plugins, "models/acme").state == "failed"
    assert state(plugins, "models/acme").reason.startswith(reason)
    assert tables(plugins) == ["acme_auth"]


def test_a_plugin_whose_library_is_missing_says_so_in_its_own_words(install: Install, foreign: Foreign) -> None:
    source = """
    from tensorfold.errors import PluginUnavailable
    raise PluginUnavailable("needs mlx: pip install tensorfold[mlx]")
    """
    install("acme", "1", {"tensorfold.backends": {"acme": "acme_backend"}}, {"acme_backend": source})
    found = state(Plugins(Wanted(), foreign()), "backends/acme")
    assert (found.state, found.reason) == ("unavailable", "needs mlx: pip install tensorfold[mlx]")


def test_a_plugin_may_find_its_library_missing_only_when_it_is_asked(install: Install, foreign: Foreign) -> None:
    source = """
    from tensorfold import hookimpl
    from tensorfold.errors import PluginUnavailable

    @hookimpl
    def tensorfold_backends():
        raise PluginUnavailable("needs a card")
    """
    install("acme", "1", {"tensorfold.backends": {"acme": "acme_backend"}}, {"acme_backend": source})
    plugins = Plugins(Wanted(), foreign())
    assert plugins.backends() == ()
    assert state(plugins, "backends/acme").reason == "needs a card"
    with pytest.raises(PluginFailed, match=r"plugin backends/acme \(acme 1\) cannot be loaded: needs a card"):
        Plugins(Wanted(backend="acme"), foreign()).backends()


@pytest.mark.parametrize(
    ("wanted", "id"),
    [
        (Wanted(dialects=("acme",)), r"dialects/acme \(acme 1\.2\)"),
        (Wanted(plugins=("acme_broken",)), r"dialects/acme \(acme 1\.2\)"),
        (Wanted(plugins=("dialects/acme",)), r"dialects/acme \(acme 1\.2\)"),
        (Wanted(plugins=("a_module_that_is_not_there",)), r"extras/a_module_that_is_not_there"),
        (Wanted(plugins=("./no-such-file.py",)), "extras/no-such-file"),
    ],
)
def test_a_plugin_that_was_asked_for_and_fails_stops_with_its_reason(
    install: Install, foreign: Foreign, wanted: Wanted, id: str
) -> None:
    install("acme", "1.2", {"tensorfold.dialects": {"acme": "acme_broken"}}, {"acme_broken": "import not_there"})
    with pytest.raises(PluginFailed, match=f"^plugin {id}.* cannot be loaded: .*(No module named|no file)"):
        Plugins(wanted, foreign())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("tensorfold_weather(): return ()", "unknown hook 'tensorfold_weather'"),
        ("tensorfold_dialects(settings, weather): return ()", "weather"),
    ],
)
def test_a_hook_or_argument_that_is_not_asked_leaves_the_whole_plugin_out(
    install: Install, foreign: Foreign, answer: str, reason: str
) -> None:
    source = GOOD + f"\n@hookimpl\ndef {answer}\n"
    install("acme", "1", {"tensorfold.extras": {"acme": "acme_extra"}}, {"acme_extra": source})
    plugins = Plugins(Wanted(), foreign())
    assert state(plugins, "extras/acme").state == "failed"
    assert reason in state(plugins, "extras/acme").reason
    assert tables(plugins) == []


def test_an_optional_hook_of_a_newer_server_harms_nobody(install: Install, foreign: Foreign) -> None:
    source = GOOD + "\n@hookimpl(optionalhook=True)\ndef tensorfold_weather(): return ()\n"
    install("acme", "1", {"tensorfold.extras": {"acme": "acme_extra"}}, {"acme_extra": source})
    assert tables(Plugins(Wanted(), foreign())) == ["acme_extra"]


def test_a_module_that_answers_nothing_is_no_plugin(install: Install, foreign: Foreign) -> None:
    install("acme", "1", {}, {"acme_empty": "def tensorfold_dialects(): return ()\n"})
    with pytest.raises(PluginFailed, match="answers no hook"):
        Plugins(Wanted(plugins=("acme_empty",)), foreign())


@pytest.mark.parametrize("body", ["raise KeyError('x')", "yield 1 / 0", "return 7"])
def test_a_hook_that_raises_stops_with_the_plugin_and_the_hook(install: Install, foreign: Foreign, body: str) -> None:
    source = f"from tensorfold import hookimpl\n@hookimpl\ndef tensorfold_settings():\n    {body}\n"
    install("acme", "1", {"tensorfold.extras": {"acme": "acme_extra"}}, {"acme_extra": source})
    with pytest.raises(PluginFailed, match=r"^plugin extras/acme \(acme 1\): tensorfold_settings raised \w+Error: "):
        Plugins(Wanted(), foreign()).settings()


def test_a_hook_that_answers_with_something_else_stops_with_what_it_answered(
    install: Install, foreign: Foreign
) -> None:
    source = "from tensorfold import hookimpl\n@hookimpl\ndef tensorfold_settings(): return ['keys']\n"
    install("acme", "1", {"tensorfold.extras": {"acme": "acme_extra"}}, {"acme_extra": source})
    with pytest.raises(PluginFailed, match="answered with 'keys', and must answer with SettingsTable objects"):
        Plugins(Wanted(), foreign()).settings()


def test_two_distributions_with_one_plugin_name_stop_with_both_named(install: Install, foreign: Foreign) -> None:
    install("acme", "1.0", {"tensorfold.auth": {"keys": "acme_auth"}}, {"acme_auth": GOOD})
    install("zeta", "2.0", {"tensorfold.auth": {"keys": "zeta_auth"}}, {"zeta_auth": GOOD})
    with pytest.raises(PluginConflict, match=r"^acme 1\.0 and zeta 2\.0 both offer a plugin auth/keys"):
        Plugins(Wanted(), foreign())
    assert Plugins(Wanted(plugins=("no:auth/keys",)), foreign()).settings() == ()


def test_a_checkpoint_is_found_by_the_plugin_that_was_asked_for_before_installed_ones(
    install: Install, foreign: Foreign, tmp_path: Path
) -> None:
    source = """
    from pathlib import Path
    from tensorfold import hookimpl

    @hookimpl
    def tensorfold_find_checkpoint(name):
        return Path(__name__) / name if name != "nobody" else None
    """
    install("acme", "1", {"tensorfold.extras": {"acme": "acme_extra"}}, {"acme_extra": source, "acme_mine": source})
    plugins = Plugins(Wanted(plugins=("acme_mine",)), foreign())
    assert plugins.find_checkpoint("m") == Path("acme_mine/m")
    assert plugins.find_checkpoint("nobody") is None
    assert Plugins(Wanted(), foreign()).find_checkpoint("m") == Path("acme_extra/m")
