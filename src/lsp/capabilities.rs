//! What both sides can do. In: the client's `initialize`. Out: what is offered, and [`Client`]. Never: an offer without an answer in
//! `answers.rs`. Next: `server.rs`.

use super::text::Encoding;
use lsp_types::InitializeParams;
use serde_json::{Value, json};

/// What the client can do, as far as it matters here.
#[derive(Clone, Debug)]
pub struct Client {
    pub encoding: Encoding,
    pub progress: bool,
    pub watches_files: bool,
    pub related: bool,
    pub hierarchical_symbols: bool,
    pub markdown: bool,
    pub refreshes_hints: bool,
}

impl Client {
    pub fn new(params: &InitializeParams) -> Client {
        // Its types are nested options, and a client may leave out any of them.
        let all = serde_json::to_value(&params.capabilities).unwrap_or_default();
        let says = |path: &str| all.pointer(path).and_then(Value::as_bool) == Some(true);
        let offered: Vec<&str> = all
            .pointer("/general/positionEncodings")
            .and_then(Value::as_array)
            .map_or_else(Vec::new, |list| list.iter().filter_map(Value::as_str).collect());
        let encoding = match () {
            () if offered.contains(&"utf-8") => Encoding::Utf8,
            () if offered.contains(&"utf-32") && !offered.contains(&"utf-16") => Encoding::Utf32,
            () => Encoding::Utf16,
        };
        let formats = all.pointer("/textDocument/hover/contentFormat").and_then(Value::as_array);
        Client {
            encoding,
            progress: says("/window/workDoneProgress"),
            watches_files: says("/workspace/didChangeWatchedFiles/dynamicRegistration"),
            related: says("/textDocument/publishDiagnostics/relatedInformation"),
            hierarchical_symbols: says("/textDocument/documentSymbol/hierarchicalDocumentSymbolSupport"),
            markdown: formats.is_some_and(|list| list.iter().any(|f| f == "markdown")),
            refreshes_hints: says("/workspace/inlayHint/refreshSupport"),
        }
    }
}

/// What is offered.
pub fn offered(client: &Client) -> Value {
    let encoding = match client.encoding {
        Encoding::Utf8 => "utf-8",
        Encoding::Utf16 => "utf-16",
        Encoding::Utf32 => "utf-32",
    };
    json!({
        "capabilities": {
            "positionEncoding": encoding,
            "textDocumentSync": { "openClose": true, "change": 2, "save": { "includeText": false } },
            "hoverProvider": true,
            "definitionProvider": true,
            "typeDefinitionProvider": true,
            "documentSymbolProvider": true,
            "inlayHintProvider": { "resolveProvider": false },
            "codeActionProvider": { "codeActionKinds": ["quickfix", "refactor.rewrite"], "resolveProvider": false },
            "workspace": { "workspaceFolders": { "supported": true, "changeNotifications": true } },
        },
        "serverInfo": { "name": "spmd-check", "version": env!("CARGO_PKG_VERSION") },
    })
}

/// What the client is asked to watch.
pub fn watched() -> Value {
    let watchers: Vec<Value> = ["**/*.py", "**/spmd-check.toml", "**/pyproject.toml"]
        .iter()
        .map(|glob| json!({ "globPattern": glob }))
        .collect();
    json!({ "registrations": [{
        "id": "spmd-check-files",
        "method": "workspace/didChangeWatchedFiles",
        "registerOptions": { "watchers": watchers },
    }]})
}
