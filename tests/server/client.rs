//! A client of the language server, over the standard streams of the built program. In: requests and notifications. Out: what comes
//! back. Never: a wait without an end. Next: `../server.rs`.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

pub struct Client {
    process: Child,
    input: Option<ChildStdin>,
    incoming: Receiver<Value>,
    next: i64,
    /// The last diagnostics by address, with the version they are about.
    pub diagnostics: BTreeMap<String, (Option<i64>, Vec<Value>)>,
    /// Notifications and requests of the server, in order.
    pub heard: Vec<Value>,
}

impl Client {
    /// A server to which nothing was said.
    pub fn silent() -> Client {
        let mut process = Command::new(env!("CARGO_BIN_EXE_spmd-check"))
            .arg("server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let input = process.stdin.take();
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let (send, incoming) = channel();
        std::thread::spawn(move || {
            while let Some(message) = message(&mut output) {
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        Client { process, input, incoming, next: 0, diagnostics: BTreeMap::new(), heard: Vec::new() }
    }

    /// A server that was asked to serve these folders.
    pub fn new(roots: &[&Path], encodings: &[&str]) -> Client {
        let mut client = Client::silent();
        let folders: Vec<Value> = roots.iter().map(|root| json!({ "uri": uri(root), "name": "folder" })).collect();
        let answer = client.request(
            "initialize",
            json!({
                "processId": null, "rootUri": null, "workspaceFolders": folders,
                "capabilities": {
                    "general": { "positionEncodings": encodings },
                    "window": { "workDoneProgress": true },
                    "workspace": { "didChangeWatchedFiles": { "dynamicRegistration": true } },
                    "textDocument": {
                        "publishDiagnostics": { "relatedInformation": true },
                        "hover": { "contentFormat": ["markdown"] },
                        "documentSymbol": { "hierarchicalDocumentSymbolSupport": true },
                    },
                },
            }),
        );
        assert!(answer["result"]["capabilities"]["hoverProvider"] == json!(true), "{answer}");
        client.notify("initialized", json!({}));
        client
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("the server listens");
        input.write_all(bytes).and_then(|()| input.flush()).expect("the server reads");
    }

    pub fn send(&mut self, message: &Value) {
        let text = message.to_string();
        self.bytes(format!("Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes());
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Sends a request without waiting for its answer.
    pub fn ask(&mut self, method: &str, params: Value) -> i64 {
        self.next += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }));
        self.next
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer(&json!(id))
    }

    /// The answer to a request.
    pub fn answer(&mut self, id: &Value) -> Value {
        loop {
            let message = self.take();
            if message.get("method").is_none() && message["id"] == *id {
                return message;
            }
        }
    }

    /// The next message, noted.
    pub fn take(&mut self) -> Value {
        let message = self.incoming.recv_timeout(PATIENCE).expect("the server says something");
        if message["method"] == "textDocument/publishDiagnostics" {
            let params = &message["params"];
            let list = params["diagnostics"].as_array().cloned().unwrap_or_default();
            let address = params["uri"].as_str().unwrap_or_default().to_string();
            self.diagnostics.insert(address, (params["version"].as_i64(), list));
        } else if message.get("method").is_some() && message.get("id").is_some() {
            self.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": null }));
        }
        if message.get("method").is_some() {
            self.heard.push(message.clone());
        }
        message
    }

    pub fn open(&mut self, path: &Path, text: &str) -> Vec<Value> {
        let document = json!({ "uri": uri(path), "languageId": "python", "version": 1, "text": text });
        self.notify("textDocument/didOpen", json!({ "textDocument": document }));
        self.until(path, 1)
    }

    /// Opens a file as it is.
    pub fn open_file(&mut self, path: &Path) -> (String, Vec<Value>) {
        let text = std::fs::read_to_string(path).expect("the file is there");
        let found = self.open(path, &text);
        (text, found)
    }

    pub fn change(&mut self, path: &Path, version: i64, text: &str) -> Vec<Value> {
        self.change_by(path, version, json!([{ "text": text }]));
        self.until(path, version)
    }

    pub fn change_by(&mut self, path: &Path, version: i64, changes: Value) {
        let document = json!({ "uri": uri(path), "version": version });
        self.notify("textDocument/didChange", json!({ "textDocument": document, "contentChanges": changes }));
    }

    /// The diagnostics of a version of a document.
    pub fn until(&mut self, path: &Path, version: i64) -> Vec<Value> {
        let address = uri(path);
        loop {
            if let Some((Some(known), list)) = self.diagnostics.get(&address)
                && *known == version
            {
                return list.clone();
            }
            self.take();
        }
    }

    /// Waits until everything before is done; an answer about types comes after the diagnostics.
    pub fn settle(&mut self, path: &Path) {
        self.request("textDocument/documentSymbol", json!({ "textDocument": { "uri": uri(path) } }));
    }

    pub fn codes(&self, path: &Path) -> Vec<String> {
        let known = self.diagnostics.get(&uri(path)).map_or(&[][..], |(_, list)| list);
        known.iter().filter_map(|d| d["code"].as_str().map(str::to_string)).collect()
    }

    /// Asks about a place of a document.
    pub fn at(&mut self, method: &str, path: &Path, position: &Value) -> Value {
        let answer = self.request(method, json!({ "textDocument": { "uri": uri(path) }, "position": position }));
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// Ends the connection; the exit code.
    pub fn end(mut self) -> Option<i32> {
        let answer = self.request("shutdown", Value::Null);
        assert!(answer["result"].is_null() && answer.get("error").is_none(), "{answer}");
        self.notify("exit", Value::Null);
        self.code()
    }

    /// The exit code, once the server ends.
    pub fn code(&mut self) -> Option<i32> {
        self.process.wait().ok()?.code()
    }

    pub fn close_input(&mut self) {
        self.input = None;
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn message(output: &mut impl BufRead) -> Option<Value> {
    let mut length = None;
    loop {
        let mut line = String::new();
        if output.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            header => length = header.strip_prefix("Content-Length: ").and_then(|n| n.parse().ok()).or(length),
        }
    }
    let mut bytes = vec![0; length?];
    output.read_exact(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

pub fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// The position of the n-th character after the first occurrence of a word.
pub fn position(text: &str, word: &str, n: usize) -> Value {
    let at = text.find(word).expect("the text has the word") + n;
    let line = text[..at].matches('\n').count();
    let start = text[..at].rfind('\n').map_or(0, |i| i + 1);
    json!({ "line": line, "character": text[start..at].encode_utf16().count() })
}

/// A folder of its own that is removed in the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("spmd-check-server-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder can be made");
        let path = path.canonicalize().expect("it is there");
        std::fs::write(path.join("spmd-check.toml"), "").expect("a file can be written");
        Folder(path)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder can be made");
        std::fs::write(&path, text).expect("a file can be written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
