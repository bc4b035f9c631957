//! Answers to requests. In: a request and the workspaces. Out: a result or a refusal. Never: a request without either. Next: `hover.rs` and
//! its neighbours, one for each question.

use super::capabilities::Client;
use super::outbox::Refusal;
use super::text::{Encoding, Text};
use super::types::{FileTypes, Named, name_at};
use super::worker::Documents;
use super::workspace::Workspace;
use super::{actions, definition, hints, hover, server, symbols, uri};
use crate::source::{FileId, Place, Span};
use lsp_server::{ErrorCode, Request};
use lsp_types::{
    CodeActionParams, DocumentSymbolParams, HoverParams, InlayHintParams, Position, Range, TextDocumentPositionParams,
    Uri,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

/// A position in a file of a workspace.
pub struct Spot<'a> {
    pub workspace: &'a Workspace,
    pub file: FileId,
    /// In the text of the session.
    pub offset: u32,
    pub encoding: Encoding,
}

impl Spot<'_> {
    pub fn range(&self, span: Span) -> Range {
        self.workspace.range(Place { file: self.file, span }, self.encoding)
    }

    pub fn named(&self) -> Option<Named<'_>> {
        name_at(&self.workspace.session.files()[self.file].text, self.offset)
    }
}

/// What comes of a request.
pub enum Answer {
    Done(Result<Value, Refusal>),
    /// A text changed meanwhile: to be asked again.
    Again,
}

/// Requests that need types.
const OFFERED: [&str; 6] = [
    "textDocument/hover",
    "textDocument/definition",
    "textDocument/typeDefinition",
    "textDocument/documentSymbol",
    "textDocument/inlayHint",
    "textDocument/codeAction",
];

pub fn is_offered(method: &str) -> bool {
    OFFERED.contains(&method)
}

fn parameters<T: DeserializeOwned>(request: &Request) -> Result<T, Refusal> {
    serde_json::from_value(request.params.clone()).map_err(|error| Refusal(ErrorCode::InvalidParams, error.to_string()))
}

/// Answers a request about a document.
pub fn answer(documents: &mut Documents, client: &Client, request: &Request) -> Answer {
    if !is_offered(&request.method) {
        return Answer::Done(Err(server::unknown(&request.method)));
    }
    let uri = match document(request) {
        Ok(uri) => uri,
        Err(refusal) => return Answer::Done(Err(refusal)),
    };
    // A document that is not checked has nothing to tell.
    let wants_hints = documents.options_hints();
    let Some((workspace, file)) = uri::path(&uri).and_then(|path| documents.find(&path)) else {
        return Answer::Done(check_parameters(request).map(|()| Value::Null));
    };
    let Some(types) = workspace.types(file) else { return Answer::Again };
    Answer::Done(about(workspace, file, &types, client, request, wants_hints))
}

fn document(request: &Request) -> Result<Uri, Refusal> {
    let uri = request.params.pointer("/textDocument/uri").cloned().unwrap_or(Value::Null);
    serde_json::from_value(uri)
        .map_err(|error| Refusal(ErrorCode::InvalidParams, format!("`textDocument.uri` is no address: {error}")))
}

/// Whether the parameters are those of the request.
fn check_parameters(request: &Request) -> Result<(), Refusal> {
    match request.method.as_str() {
        "textDocument/documentSymbol" => parameters::<DocumentSymbolParams>(request).map(drop),
        "textDocument/inlayHint" => parameters::<InlayHintParams>(request).map(drop),
        "textDocument/codeAction" => parameters::<CodeActionParams>(request).map(drop),
        _ => parameters::<TextDocumentPositionParams>(request).map(drop),
    }
}

fn about(
    workspace: &Workspace,
    file: FileId,
    types: &Arc<FileTypes>,
    client: &Client,
    request: &Request,
    wants_hints: bool,
) -> Result<Value, Refusal> {
    let encoding = client.encoding;
    let spot = |position: Position| {
        let text = Text::new(workspace.session.text(file), encoding);
        let offset = text.offset_in(&workspace.session.files()[file], position);
        Spot { workspace, file, offset, encoding }
    };
    Ok(match request.method.as_str() {
        "textDocument/hover" => {
            let params: HoverParams = parameters(request)?;
            let spot = spot(params.text_document_position_params.position);
            json!(hover::hover(&spot, types, client.markdown))
        }
        "textDocument/definition" | "textDocument/typeDefinition" => {
            let params: TextDocumentPositionParams = parameters(request)?;
            json!(definition::producers(&spot(params.position), types))
        }
        "textDocument/documentSymbol" => {
            parameters::<DocumentSymbolParams>(request)?;
            let tree = symbols::nested(workspace, file, types, encoding);
            match client.hierarchical_symbols {
                true => json!(tree),
                false => json!(symbols::flat(workspace, file, tree)),
            }
        }
        "textDocument/inlayHint" => {
            let params: InlayHintParams = parameters(request)?;
            match wants_hints {
                true => json!(hints::hints(workspace, file, types, params.range, encoding)),
                false => json!([]),
            }
        }
        _ => {
            let params: CodeActionParams = parameters(request)?;
            let spot = spot(params.range.start);
            let only = params.context.only.unwrap_or_default();
            json!(actions::actions(&spot, params.range, Some(types), &only))
        }
    })
}
