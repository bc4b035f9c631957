//! What the client tells. In: notifications. Out: texts, folders and settings as they are now, and what has to be checked again. Never: an
//! answer; what is not understood is told in the client's log. Next: `workspace.rs`.

use super::text::changed;
use super::worker::{Open, Worker, inside, is_project};
use super::workspace::{Extent, Options, Unusable, Workspace, around, is_python};
use super::{publish, uri};
use crate::source::disk;
use lsp_server::Notification;
use lsp_types::{
    DidChangeTextDocumentParams, DidChangeWatchedFilesParams, DidChangeWorkspaceFoldersParams,
    DidCloseTextDocumentParams, DidOpenTextDocumentParams, DidSaveTextDocumentParams, FileChangeType, Uri,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

impl Worker {
    /// The parameters of a notification; what does not fit is told and left out.
    fn read<T: DeserializeOwned>(&self, note: Notification) -> Option<T> {
        match serde_json::from_value(note.params) {
            Ok(params) => Some(params),
            Err(error) => {
                self.outbox.log(&format!("`{}` is not understood: {error}", note.method));
                None
            }
        }
    }

    pub fn notification(&mut self, note: Notification) {
        match note.method.as_str() {
            "textDocument/didOpen" => {
                if let Some(params) = self.read::<DidOpenTextDocumentParams>(note) {
                    let document = params.text_document;
                    self.opened(document.uri, document.version, document.text);
                }
            }
            "textDocument/didChange" => {
                if let Some(params) = self.read(note) {
                    self.changed(params);
                }
            }
            "textDocument/didClose" => {
                if let Some(params) = self.read::<DidCloseTextDocumentParams>(note) {
                    self.closed(&params.text_document.uri);
                }
            }
            "textDocument/didSave" => {
                if let Some(params) = self.read::<DidSaveTextDocumentParams>(note)
                    && let Some(path) = uri::path(&params.text_document.uri)
                {
                    // Nothing changed; whoever waits for the diagnostics of what was saved gets them.
                    self.touched.insert(path);
                }
            }
            "workspace/didChangeWatchedFiles" => {
                if let Some(params) = self.read(note) {
                    self.files_changed(params);
                }
            }
            "workspace/didChangeConfiguration" => {
                let settings = note.params.get("settings").cloned().unwrap_or(Value::Null);
                let own = settings.get("spmd-check").or_else(|| settings.get("spmdCheck")).unwrap_or(&settings);
                if own.is_object() {
                    self.documents.options = options(own);
                }
                self.load();
            }
            "workspace/didChangeWorkspaceFolders" => {
                if let Some(params) = self.read::<DidChangeWorkspaceFoldersParams>(note) {
                    let gone: Vec<PathBuf> = params.event.removed.iter().filter_map(|f| uri::path(&f.uri)).collect();
                    self.documents.folders.retain(|folder| !gone.contains(folder));
                    let added = params.event.added.iter().filter_map(|f| uri::path(&f.uri));
                    self.documents.folders.extend(added.filter(|folder| is_project(folder)));
                    self.load();
                }
            }
            _ => {}
        }
    }

    fn opened(&mut self, uri: Uri, version: i32, text: String) {
        let Some(path) = uri::path(&uri) else { return };
        self.documents.open.insert(path.clone(), Open { uri, version });
        let known = self.give(&path, &text);
        self.documents.texts.insert(path.clone(), text);
        if !known {
            self.place(&path);
        }
        self.touched.insert(path);
    }

    /// Gives a text to the workspaces that have the file; whether there is one.
    fn give(&mut self, path: &Path, text: &str) -> bool {
        let mut known = false;
        for workspace in &mut self.documents.workspaces {
            if let Some(file) = workspace.file(path) {
                let work = || workspace.edit(file, text.to_owned());
                inside(self.pool.as_ref(), work);
                known = true;
            }
        }
        known
    }

    /// A document that no workspace has is added to the one that takes it, or makes one.
    fn place(&mut self, path: &Path) {
        if !is_python(path) {
            return;
        }
        let at = self.documents.workspaces.iter().position(|w| w.takes(path));
        let (root, extent) = match at {
            Some(at) => self.documents.workspaces[at].loaded_from(),
            None if self.is_held(path) => return,
            None => match around(path) {
                Some(found) => found,
                None => return,
            },
        };
        if at.is_none() && self.documents.workspaces.iter().any(|w| w.root == root) {
            // The project around it leaves it out.
            return;
        }
        let loaded = self.load_one(&root, extent);
        match (at, loaded) {
            (Some(at), Some(workspace)) => self.documents.workspaces[at] = workspace,
            (None, Some(workspace)) => self.documents.workspaces.push(workspace),
            (_, None) => {}
        }
    }

    fn changed(&mut self, params: DidChangeTextDocumentParams) {
        let Some(path) = uri::path(&params.text_document.uri) else { return };
        let (Some(open), Some(text)) = (self.documents.open.get_mut(&path), self.documents.texts.get_mut(&path)) else {
            self.outbox.log("a document changed that is not open");
            return;
        };
        open.version = params.text_document.version;
        for change in &params.content_changes {
            *text = changed(text, change, self.client.encoding);
        }
        let text = text.clone();
        self.give(&path, &text);
        self.touched.insert(path);
    }

    fn closed(&mut self, uri: &Uri) {
        let Some(path) = uri::path(uri) else { return };
        self.documents.open.remove(&path);
        self.documents.texts.remove(&path);
        // What counts is the file again.
        match disk::read_source(&path).ok().and_then(|bytes| crate::syntax::decode(&bytes).ok()) {
            Some(text) => drop(self.give(&path, &text)),
            None => self.load(),
        }
        self.touched.insert(path);
    }

    fn files_changed(&mut self, params: DidChangeWatchedFilesParams) {
        let mut again = false;
        for event in params.changes {
            let Some(path) = uri::path(&event.uri) else { continue };
            let python = is_python(&path);
            let known = self.documents.find(&path).is_some();
            match (python, self.documents.open.contains_key(&path), known) {
                (true, true, true) => {}
                (true, false, true) if event.typ != FileChangeType::DELETED => {
                    match disk::read_source(&path).ok().and_then(|bytes| crate::syntax::decode(&bytes).ok()) {
                        Some(text) => drop(self.give(&path, &text)),
                        None => again = true,
                    }
                }
                _ => again = true,
            }
        }
        if again {
            self.load();
        }
    }

    /// Reads all folders.
    pub fn load(&mut self) {
        let first = !self.loaded && self.client.progress;
        let token = "spmd-check/load";
        if first {
            self.outbox.ask("window/workDoneProgress/create", json!({ "token": token }));
            let begin = json!({ "kind": "begin", "title": "spmd-check", "message": "reading the project", "cancellable": false });
            self.outbox.notify("$/progress", json!({ "token": token, "value": begin }));
        }
        self.misconfigured.clear();
        self.untold = true;
        let mut roots: Vec<(PathBuf, Extent)> =
            self.documents.folders.iter().map(|folder| (folder.clone(), Extent::Whole)).collect();
        let outside = self.documents.open.keys().filter(|path| is_python(path) && !self.is_held(path));
        roots.extend(outside.filter_map(|path| around(path)));
        let mut seen = BTreeSet::new();
        roots.retain(|(root, _)| seen.insert(root.clone()));
        self.documents.workspaces = roots.iter().filter_map(|(root, extent)| self.load_one(root, *extent)).collect();
        self.touched.extend(self.documents.open.keys().cloned());
        if !self.loaded {
            self.loaded = true;
            self.check();
        }
        if first {
            let end = json!({ "kind": "end", "message": "ready" });
            self.outbox.notify("$/progress", json!({ "token": token, "value": end }));
        }
    }

    /// Whether a file lies in a folder of the client.
    fn is_held(&self, path: &Path) -> bool {
        self.documents.folders.iter().any(|folder| path.starts_with(folder))
    }

    fn load_one(&mut self, root: &Path, extent: Extent) -> Option<Workspace> {
        let (options, texts, stop) = (&self.documents.options, &self.documents.texts, &self.documents.stop);
        match inside(self.pool.as_ref(), || Workspace::load((root, extent), options, texts, stop)) {
            Ok(workspace) => Some(workspace),
            Err(Unusable::Words(words)) => {
                self.outbox.show_error(&words);
                None
            }
            Err(Unusable::Diagnostics(found)) => {
                for (uri, list) in publish::of_config(&found, root, self.client.encoding) {
                    self.misconfigured.insert(uri, list);
                }
                self.outbox.show_error("the configuration of spmd-check has mistakes: nothing is checked");
                None
            }
        }
    }
}

/// What a client sets.
pub fn options(settings: &Value) -> Options {
    let default = Options::default();
    Options {
        config: settings.get("config").and_then(Value::as_str).filter(|path| !path.is_empty()).map(PathBuf::from),
        hints: settings.get("inlayHints").and_then(Value::as_bool).unwrap_or(default.hints),
    }
}
