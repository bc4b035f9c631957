//! What the client tells. In: notifications. Out: texts, folders and settings as they are now, and what has to be checked again. Never: an
//! answer; what is not understood is told in the client's log. Next: `workspace.rs`.

use super::text::changed;
use super::worker::{Open, Worker, inside};
use super::workspace::{Options, Unusable, Workspace};
use super::{publish, uri};
use crate::config::project_root;
use crate::source::disk;
use lsp_server::Notification;
use lsp_types::{
    DidChangeTextDocumentParams, DidChangeWatchedFilesParams, DidChangeWorkspaceFoldersParams,
    DidCloseTextDocumentParams, DidOpenTextDocumentParams, DidSaveTextDocumentParams, FileChangeType, Uri,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
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
                    self.documents.folders.extend(params.event.added.iter().filter_map(|f| uri::path(&f.uri)));
                    self.load();
                }
            }
            _ => {}
        }
    }

    fn opened(&mut self, uri: Uri, version: i32, text: String) {
        let Some(path) = uri::path(&uri) else { return };
        self.documents.open.insert(path.clone(), Open { uri, version });
        self.documents.texts.insert(path.clone(), text.clone());
        self.touched.insert(path.clone());
        self.give(&path, text);
    }

    /// Gives the workspaces a text; a file that none has is added to the one that takes it, or makes one.
    fn give(&mut self, path: &Path, text: String) {
        let mut known = false;
        for workspace in &mut self.documents.workspaces {
            if let Some(file) = workspace.file(path) {
                let work = || workspace.edit(file, text.clone());
                inside(self.pool.as_ref(), work);
                known = true;
            }
        }
        if known || path.extension().is_none_or(|extension| extension != "py") {
            return;
        }
        let at = self.documents.workspaces.iter().position(|w| w.takes(path));
        let root = match at {
            Some(at) => self.documents.workspaces[at].root.clone(),
            None if self.documents.folders.iter().any(|folder| path.starts_with(folder)) => return,
            None => match project_root(path).or_else(|| path.parent().map(Path::to_owned)) {
                Some(root) => root,
                None => return,
            },
        };
        let loaded = self.load_one(&root);
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
        self.touched.insert(path.clone());
        self.give(&path, text);
    }

    fn closed(&mut self, uri: &Uri) {
        let Some(path) = uri::path(uri) else { return };
        self.documents.open.remove(&path);
        self.documents.texts.remove(&path);
        // What counts is the file again.
        match disk::read_source(&path).ok().and_then(|bytes| crate::syntax::decode(&bytes).ok()) {
            Some(text) => self.give(&path, text),
            None => self.load(),
        }
        self.touched.insert(path);
    }

    fn files_changed(&mut self, params: DidChangeWatchedFilesParams) {
        let mut again = false;
        for event in params.changes {
            let Some(path) = uri::path(&event.uri) else { continue };
            let python = path.extension().is_some_and(|extension| extension == "py");
            let known = self.documents.find(&path).is_some();
            match (python, self.documents.open.contains_key(&path), known) {
                (true, true, true) => {}
                (true, false, true) if event.typ != FileChangeType::DELETED => {
                    match disk::read_source(&path).ok().and_then(|bytes| crate::syntax::decode(&bytes).ok()) {
                        Some(text) => self.give(&path, text),
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
        let mut roots = self.documents.folders.clone();
        let extra = self.documents.workspaces.iter().map(|w| w.root.clone()).filter(|root| {
            let held = self.documents.folders.iter().any(|folder| root.starts_with(folder));
            !held && self.documents.open.keys().any(|path| path.starts_with(root))
        });
        roots.extend(extra);
        roots.dedup();
        self.documents.workspaces = roots.iter().filter_map(|root| self.load_one(root)).collect();
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

    fn load_one(&mut self, root: &Path) -> Option<Workspace> {
        let (options, texts, stop) = (&self.documents.options, &self.documents.texts, &self.documents.stop);
        match inside(self.pool.as_ref(), || Workspace::load(root, options, texts, stop)) {
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
