"""What the pages promise: signatures, commands, names and links that exist."""

from __future__ import annotations

import enum
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import neuraldbg
from neuraldbg import errors, hookspecs
from neuraldbg.cli import neuraldbg as command_line
from neuraldbg.inquiry import Inquiry
from neuraldbg.schema.keys import STATES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
CORE = ROOT / "packages/neuraldbg-core/src/neuraldbg"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "logic_graph.md",
    *sorted((ROOT / "packages").glob("*/README.md")),
    *sorted(DOCS.rglob("*.md")),
]
HOOKS = sorted(name for name in vars(hookspecs) if name.startswith("neuraldbg_"))
# Of which the figures of a sentence may differ between machines.
TOLERANCE = 0.02
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _section(text: str, title: str) -> str:
    """Return what stands under the heading, up to the next one of its level or above."""
    found = re.search(rf"(?m)^(#+) `?{re.escape(title)}`?$", text)
    assert found, f"no section {title!r}"
    rest = text[found.end() :]
    end = re.search(rf"(?m)^#{{1,{len(found[1])}}} ", rest)
    return rest[: end.start()] if end else rest


def _block(text: str, language: str = "py") -> str:
    found = re.search(rf"(?s)```{language}\n(.*?)```", text)
    assert found, f"no {language} block"
    return found[1].strip()


def _rows(text: str) -> dict[str, str]:
    """Return the rows of a table by what stands in code in their first cell, without the head."""
    found = re.findall(r"(?m)^\| `(\w+)` \| (.*) \|$", text)
    return {name: cells for name, cells in found if name not in {"failure_type", "event_type"}}


def _signature(function: object, *, is_method: bool = False) -> str:
    """Return parameters and result as they stand in the source, without `self`."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    parameters = list(signature.parameters.values())[is_method:]
    text = str(signature.replace(parameters=parameters))
    return _unquoted(text)


def _unquoted(text: str) -> str:
    """Return the signature with the quotes of string annotations removed."""
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)


def _squeezed(text: str) -> str:
    """Return the text without line breaks, as a signature of one line would stand."""
    line = " ".join(text.split())
    return line.replace("( ", "(").replace(", )", ")").replace(" )", ")")


# --- README ---------------------------------------------------------------------------------


def _quick_start() -> tuple[str, str]:
    found = re.search(
        r"(?s)<!-- quick start -->\n\n```python\n(.*?)```\n\n<!-- prints -->\n\n```text\n(.*?)```",
        _text(README),
    )
    assert found, "README.md has no quick start with its output"
    return found[1], found[2]


def _run(program: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not answer.stderr
    return answer.stdout


def test_quick_start_prints_what_the_page_shows() -> None:
    program, shown = _quick_start()
    printed = _run(program)
    assert printed.count("\n") == 1, "one sentence"
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown), f"it prints {printed!r}"
    figures = [float(figure) for figure in NUMBER.findall(shown)]
    assert [float(figure) for figure in NUMBER.findall(printed)] == pytest.approx(
        figures, rel=TOLERANCE
    ), f"it prints {printed!r}"


def test_quick_start_with_the_changes_that_the_page_names_learns() -> None:
    program, _ = _quick_start()
    for old, new in re.findall(r"`([^`]+)` for `([^`]+)`", _text(README))[:2]:
        assert new in program
        program = program.replace(new, old)
    program = program.replace("print(dbg.explain_failure()[0])", "print(dbg.explain_failure())")
    assert _run(program) == "[]\n"


def test_package_page_has_the_quick_start_of_the_readme() -> None:
    program, _ = _quick_start()
    loop = program.rpartition("\nprint(")[0].strip()
    assert loop in _text(ROOT / "packages/neuraldbg-core/README.md")


def test_readme_lists_every_failure_type_with_its_sentence() -> None:
    from neuraldbg.causes import vocabulary

    rows = _rows(_section(_text(README), "Failure types"))
    assert list(rows) == [str(failure) for failure in neuraldbg.FailureType]
    for failure, sentence in rows.items():
        assert re.sub(r" \(states: .*\)", "", vocabulary().failure(failure)) == sentence


@pytest.mark.parametrize(
    ("page", "title"),
    [("README.md", "Event types"), ("docs/reference/events.md", "Types and states")],
)
def test_page_lists_every_event_type_with_its_states(page: str, title: str) -> None:
    section = _section(_text(ROOT / page), title)
    rows = _rows(section)
    assert list(rows) == [str(kind) for kind in neuraldbg.EventType]
    for kind, states in STATES.items():
        assert [word for word in re.findall(r"`(\w+)`", rows[kind]) if word in states] == [
            str(state) for state in states
        ]


# --- commands -------------------------------------------------------------------------------


def _console_lines() -> list[tuple[str, str]]:
    return [
        (_name(page), line.removeprefix("$ "))
        for page in PAGES
        for block in re.findall(r"(?s)```console\n(.*?)```", _text(page))
        for line in block.splitlines()
        if line.startswith("$ ")
    ]


def test_every_neuraldbg_command_of_a_page_exists_with_its_options() -> None:
    lines = [
        (page, line.split()[1:]) for page, line in _console_lines() if line.startswith("neuraldbg ")
    ]
    assert lines
    for page, (name, *rest) in lines:
        command = command_line.commands.get(name)
        assert command, f"{page}: no command {name!r}"
        options = {option for each in command.params for option in each.opts}
        unknown = {word for word in rest if word.startswith("-")} - options
        assert not unknown, f"{page}: {name} has no option {sorted(unknown)}"


def test_every_program_that_a_page_runs_exists() -> None:
    scripts = [
        (page, word)
        for page, line in _console_lines()
        for word in line.split()
        if word.endswith(".py") and "/" in word
    ]
    assert scripts
    assert not [(page, word) for page, word in scripts if not (ROOT / word).is_file()]


@pytest.mark.parametrize("name", sorted(command_line.commands))
def test_command_is_documented_with_its_help(name: str) -> None:
    page = _text(DOCS / "reference/cli.md")
    answer = CliRunner().invoke(
        command_line, [name, "--help"], prog_name="neuraldbg", terminal_width=80
    )
    assert answer.output.strip() in _section(page, name)


# --- reference ------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", HOOKS)
def test_hook_is_documented_with_its_exact_signature_and_its_docstring(hook: str) -> None:
    section = _section(_text(DOCS / "reference/hooks.md"), hook)
    function = getattr(hookspecs, hook)
    assert _block(section) == f"def {hook}{_signature(function)}: ..."
    first = (inspect.getdoc(function) or "").splitlines()[0]
    assert first in section


def test_reference_of_hooks_documents_no_hook_that_does_not_exist() -> None:
    assert sorted(re.findall(r"(?m)^## `(\w+)`$", _text(DOCS / "reference/hooks.md"))) == HOOKS


@pytest.mark.parametrize("name", neuraldbg.__all__)
def test_public_name_is_documented(name: str) -> None:
    assert re.search(rf"(?m)^#+ `?{name}`?$", _text(DOCS / "api.md"))


def _members() -> list[tuple[type, str]]:
    return [
        (owner, name)
        for owner in (Inquiry, neuraldbg.NeuralDbg)
        for name in vars(owner)
        if not name.startswith("_") and not (owner is neuraldbg.NeuralDbg and name in vars(Inquiry))
    ]


@pytest.mark.parametrize(
    ("owner", "name"), _members(), ids=lambda part: getattr(part, "__name__", part)
)
def test_member_is_documented_with_its_exact_signature(owner: type, name: str) -> None:
    shown = _block(_section(_section(_text(DOCS / "api.md"), owner.__name__), name))
    member = vars(owner)[name]
    if isinstance(member, property):
        assert shown == f"{name}: {member.fget.__annotations__['return']}"
    else:
        assert shown == f"def {name}{_signature(member, is_method=True)}"


def test_session_and_loader_are_documented_with_their_exact_signatures() -> None:
    page = _text(DOCS / "api.md")
    session = _signature(neuraldbg.NeuralDbg.__init__, is_method=True).removesuffix(" -> None")
    assert _squeezed(_block(_section(page, "NeuralDbg"))) == f"class NeuralDbg{session}"
    loader = _signature(neuraldbg.load_trace)
    assert _block(_section(page, "load_trace")) == f"def load_trace{loader}"


def test_settings_of_the_session_are_explained_one_by_one() -> None:
    section = _section(_text(DOCS / "api.md"), "NeuralDbg")
    explained = re.findall(r"`(\w+)`", " ".join(re.findall(r"(?m)^(`.*`)\n: ", section)))
    assert explained == list(inspect.signature(neuraldbg.NeuralDbg).parameters)


def _fields(kind: type) -> list[str]:
    fields = getattr(kind, "model_fields", None) or getattr(kind, "__dataclass_fields__", {})
    return list(fields)


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in (getattr(neuraldbg, name) for name in neuraldbg.__all__)
        if isinstance(kind, type) and (issubclass(kind, enum.Enum) or _fields(kind))
    ],
    ids=lambda kind: kind.__name__,
)
def test_record_is_documented_with_all_its_fields_or_values(kind: type) -> None:
    section = _section(_text(DOCS / "api.md"), kind.__name__)
    named = re.findall(r"`(\w+)`", section)
    expected = [str(member) for member in kind] if issubclass(kind, enum.Enum) else _fields(kind)
    assert not [name for name in expected if name not in named]


def test_every_exception_is_documented() -> None:
    section = _section(_text(DOCS / "api.md"), "Errors")
    defined = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and kind.__module__ == errors.__name__
    }
    assert defined <= set(re.findall(r"`(\w+)`", section))


# --- the pages among themselves ---------------------------------------------------------------


def test_every_page_of_the_docs_is_in_a_table_of_contents() -> None:
    listed = {
        str((page.parent / entry.strip()).relative_to(DOCS))
        for page in DOCS.rglob("*.md")
        for table in re.findall(r"(?s)```\{toctree\}\n(.*?)```", _text(page))
        for entry in table.splitlines()
        if entry.strip() and not entry.startswith(":")
    }
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")} - {"index"}
    pages = {page for page in pages if not page.startswith("_build")}
    assert pages == listed


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    bare = re.sub(r"(?s)```.*?```", "", _text(page))
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", bare)
    assert not [target for target in targets if not (page.parent / target).exists()]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_page_names_no_machine_and_no_workplace(page: Path) -> None:
    assert not re.findall(r"/(?:root|home|work|tmp)/|\.\./shared", _text(page))


def test_every_page_with_a_python_block_is_collected() -> None:
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    pages = [_name(page) for page in PAGES if "```python\n" in _text(page)]
    answer = subprocess.run(
        [*collect, *pages], cwd=ROOT, capture_output=True, text=True, check=True
    )
    collected = {line.partition("::")[0] for line in answer.stdout.splitlines()}
    assert not [page for page in pages if page not in collected]


def test_the_flow_names_modules_that_exist_and_leaves_none_out() -> None:
    text = _text(ROOT / "logic_graph.md")
    parts = {
        path.stem
        for path in CORE.iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").is_file()) and path.stem != "__init__"
    }
    assert not [part for part in sorted(parts) if part not in text]
    for package in ("capture", "reasoning", "plugins", "report", "trace"):
        for name in re.findall(rf"`?{package}\.(\w+)", text):
            home = CORE / package / name
            assert home.is_dir() or home.with_suffix(".py").is_file(), f"{package}.{name}"
