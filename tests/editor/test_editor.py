"""The built program driven by a real client, pytest-lsp. In: `SPMD_CHECK`, the binary. Run by scripts/editor.sh."""
import asyncio
import os
import pathlib
import shutil

import pytest
import pytest_lsp
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("SPMD_CHECK", str(REPOSITORY / "target/release/spmd-check"))


@pytest.fixture
def tree(tmp_path):
    shutil.copytree(REPOSITORY / "corpus/tour", tmp_path / "tour")
    (tmp_path / "spmd-check.toml").write_text("")
    return tmp_path


@pytest_lsp.fixture(
    config=ClientServerConfig(server_command=[BINARY, "server"]),
    params=["visual_studio_code", "neovim", "emacs"],
)
async def client(request, lsp_client: LanguageClient, tree):
    params = types.InitializeParams(
        capabilities=client_capabilities(request.param),
        workspace_folders=[types.WorkspaceFolder(uri=tree.as_uri(), name="tree")],
    )
    listen(lsp_client)
    await lsp_client.initialize_session(params)
    lsp_client.tree = tree
    yield
    await lsp_client.shutdown_session()


def listen(client):
    """What the test client lacks: versions of diagnostics, and an answer to a registration."""
    client.versions = {}
    del client.protocol.fm.features[types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS]

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def published(params: types.PublishDiagnosticsParams):
        client.diagnostics[params.uri] = params.diagnostics
        client.versions[params.uri] = params.version

    @client.feature(types.CLIENT_REGISTER_CAPABILITY)
    def register(params: types.RegistrationParams):
        return None

    @client.feature(types.WORKSPACE_INLAY_HINT_REFRESH)
    def refresh(params: None):
        return None


def opened(client, name, text=None):
    path = client.tree / name
    text = path.read_text() if text is None else text
    item = types.TextDocumentItem(uri=path.as_uri(), language_id="python", version=1, text=text)
    client.text_document_did_open(types.DidOpenTextDocumentParams(text_document=item))
    return path.as_uri(), text


async def published(client, uri, version):
    """The diagnostics of a version of a document."""
    for _ in range(3000):
        if client.versions.get(uri) == version:
            return list(client.diagnostics[uri])
        await asyncio.sleep(0.02)
    raise TimeoutError(uri)


def at(text, word, offset=0):
    index = text.index(word) + offset
    return types.Position(line=text[:index].count("\n"), character=index - (text.rfind("\n", 0, index) + 1))


@pytest.mark.asyncio
async def test_diagnostics_come_and_go(client: LanguageClient):
    uri, text = opened(client, "tour/block.py")
    found = await published(client, uri, 1)
    assert [d.code for d in found] == ["SPMD101"]
    assert found[0].source == "spmd-check"
    change = types.TextDocumentContentChangeWholeDocument(text="x = 1\n")
    document = types.VersionedTextDocumentIdentifier(uri=uri, version=2)
    client.text_document_did_change(types.DidChangeTextDocumentParams(text_document=document, content_changes=[change]))
    assert await published(client, uri, 2) == []


@pytest.mark.asyncio
async def test_hover_and_producer(client: LanguageClient):
    uri, text = opened(client, "tour/block.py")
    await published(client, uri, 1)
    document = types.TextDocumentIdentifier(uri=uri)
    position = at(text, "F.linear(x, self.w_in)", len("F.linear("))
    hover = await client.text_document_hover_async(types.HoverParams(text_document=document, position=position))
    assert hover is not None and "tp" in hover.contents.value and "gradient" in hover.contents.value
    call = at(text, "reduce_from_tensor_model_parallel_region(out)", 3)
    hover = await client.text_document_hover_async(types.HoverParams(text_document=document, position=call))
    assert "all_reduce" in hover.contents.value and "backward" in hover.contents.value
    params = types.TypeDefinitionParams(text_document=document, position=position)
    assert await client.text_document_type_definition_async(params)


@pytest.mark.asyncio
async def test_hints_symbols_and_actions(client: LanguageClient):
    uri, text = opened(client, "tour/block.py")
    found = await published(client, uri, 1)
    document = types.TextDocumentIdentifier(uri=uri)
    whole = types.Range(start=types.Position(line=0, character=0), end=types.Position(line=999, character=0))
    hints = await client.text_document_inlay_hint_async(types.InlayHintParams(text_document=document, range=whole))
    assert hints and all(str(hint.label).startswith(": ") for hint in hints)
    assert await client.text_document_document_symbol_async(types.DocumentSymbolParams(text_document=document))
    context = types.CodeActionContext(diagnostics=found)
    params = types.CodeActionParams(text_document=document, range=found[0].range, context=context)
    actions = await client.text_document_code_action_async(params)
    titles = [action.title for action in actions]
    assert any(title.startswith("Repair") for title in titles), titles
    assert any(title.startswith("Suppress") for title in titles), titles
    repair = next(action for action in actions if action.title.startswith("Repair"))
    edit = repair.edit.changes[uri][0]
    lines = text.split("\n")
    line = lines[edit.range.start.line]
    lines[edit.range.start.line] = line[: edit.range.start.character] + edit.new_text + line[edit.range.end.character :]
    change = types.TextDocumentContentChangeWholeDocument(text="\n".join(lines))
    document = types.VersionedTextDocumentIdentifier(uri=uri, version=2)
    client.text_document_did_change(types.DidChangeTextDocumentParams(text_document=document, content_changes=[change]))
    assert await published(client, uri, 2) == []


@pytest.mark.asyncio
@pytest.mark.parametrize("bug", ["mlm-row-bias-sp-mark", "vo-gather-bwd-no-reduce", "mlm-reduce-noncontiguous"])
async def test_bugs_of_the_corpus(client: LanguageClient, bug):
    folder = client.tree / bug
    shutil.copytree(REPOSITORY / "corpus/bugs" / bug, folder)
    uri, _ = opened(client, f"{bug}/buggy.py")
    assert await published(client, uri, 1)
    uri, _ = opened(client, f"{bug}/fixed.py")
    assert await published(client, uri, 1) == []


@pytest.mark.asyncio
async def test_what_nobody_knows_is_refused(client: LanguageClient):
    with pytest.raises(Exception, match="not offered"):
        await client.protocol.send_request_async("spmd/unknown", {})
