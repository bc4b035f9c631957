//! A session of an editor: requests and notifications with arbitrary texts, ranges and parameters, or plain bytes after the first
//! message. Every request is answered, once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use spmd_check::lsp;
use spmd_check_fuzz::programs::{programs, spliced};
use spmd_check_fuzz::{Bytes, start};
use std::collections::BTreeMap;
use std::io::{Read, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

const MOST_MESSAGES: usize = 24;
/// Shorter than what `scripts/fuzz.sh` gives an input, and longer than a session takes on a machine that is busy with other things: a server
/// that has stopped to answer is meant.
const PATIENCE: Duration = Duration::from_secs(100);

const ASKED: [&str; 8] = [
    "textDocument/hover",
    "textDocument/definition",
    "textDocument/typeDefinition",
    "textDocument/documentSymbol",
    "textDocument/inlayHint",
    "textDocument/codeAction",
    "textDocument/rename",
    "workspace/symbol",
];

const NAMES: [&str; 8] = ["one.py", "two.py", "new.py", "spmd-check.toml", "deep/three.py", "a b%.py", "", "\u{e9}.py"];

/// A small project on the disk; sessions only read it.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join("spmd-check-fuzz-server");
        std::fs::create_dir_all(folder.join("deep")).expect("the temporary folder can be written");
        for (at, name) in ["one.py", "two.py", "deep/three.py"].iter().enumerate() {
            let text = programs()[at * 7 % programs().len()].join("\n");
            std::fs::write(folder.join(name), text).expect("the temporary folder can be written");
        }
        std::fs::write(folder.join("spmd-check.toml"), "").expect("the temporary folder can be written");
        folder
    })
}

/// What the server has said, as far as it matters: how often each request was answered.
#[derive(Default)]
struct Heard {
    bytes: Vec<u8>,
    answers: BTreeMap<i64, usize>,
}

type Shared = Arc<(Mutex<Heard>, Condvar)>;

struct Ear(Shared);

impl Write for Ear {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let (heard, news) = &*self.0;
        let mut heard = heard.lock().expect("nobody panics with it");
        heard.bytes.extend_from_slice(bytes);
        while let Some((length, start)) = frame(&heard.bytes).filter(|(length, start)| start + length <= heard.bytes.len()) {
            let message: Value = serde_json::from_slice(&heard.bytes[start..start + length]).expect("the server says JSON");
            heard.bytes.drain(..start + length);
            if let (None, Some(id)) = (message.get("method"), message["id"].as_i64()) {
                *heard.answers.entry(id).or_default() += 1;
            }
        }
        news.notify_all();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Length and start of the first message.
fn frame(bytes: &[u8]) -> Option<(usize, usize)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).expect("headers are text");
    let length = head.strip_prefix("Content-Length: ").expect("there is one header").parse().expect("a length");
    Some((length, end + 4))
}

/// Gives the server everything at once, and an end when all requests are answered.
struct Mouth {
    bytes: Vec<u8>,
    at: usize,
    asked: i64,
    heard: Shared,
}

impl Read for Mouth {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let rest = &self.bytes[self.at..];
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        if count > 0 {
            return Ok(count);
        }
        let (heard, news) = &*self.heard;
        let mut heard = heard.lock().expect("nobody panics with it");
        let until = Instant::now() + PATIENCE;
        while (1..=self.asked).any(|id| !heard.answers.contains_key(&id)) {
            let left = until.saturating_duration_since(Instant::now());
            let session = String::from_utf8_lossy(&self.bytes);
            assert!(!left.is_zero(), "of {} requests these were answered: {:?}\n{session}", self.asked, heard.answers);
            heard = news.wait_timeout(heard, left).expect("nobody panics with it").0;
        }
        Ok(0)
    }
}

fn framed(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    format!("Content-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
}

fn uri(choices: &mut Bytes) -> String {
    let name = choices.pick(&NAMES).copied().unwrap_or("one.py");
    match choices.below(16) {
        15 => name.to_owned(),
        14 => format!("untitled:{name}"),
        13 => format!("file://{name}"),
        12 => format!("file:///nowhere/{name}"),
        _ => format!("file://{}/{}", folder().display(), name.replace('%', "%25").replace(' ', "%20")),
    }
}

fn root() -> Value {
    json!({ "uri": format!("file://{}", folder().display()), "name": "folder" })
}

fn position(choices: &mut Bytes) -> Value {
    let number = |choices: &mut Bytes| match choices.byte() {
        255 => json!(u32::MAX),
        254 => json!(i32::MAX),
        253 => json!(-1),
        252 => json!(0.5),
        small => json!(small % 96),
    };
    json!({ "line": number(choices), "character": number(choices) })
}

fn range(choices: &mut Bytes) -> Value {
    json!({ "start": position(choices), "end": position(choices) })
}

fn text(choices: &mut Bytes) -> String {
    let count = choices.below(48);
    match choices.below(4) {
        0 => String::from_utf8_lossy(choices.take(count)).into_owned(),
        _ => spliced(&mut Bytes::new(choices.take(count))),
    }
}

fn change(choices: &mut Bytes) -> Value {
    match choices.below(4) {
        0 => json!({ "text": text(choices) }),
        kind => {
            let count = choices.below(24);
            let piece = match kind {
                1 => String::new(),
                2 => String::from_utf8_lossy(choices.take(count)).into_owned(),
                _ => ["é\u{1f600}", "\r\n", "\r", "    ", "x", "\u{2028}", "'''", "dist.all_reduce(x)"][count % 8].to_owned(),
            };
            json!({ "range": range(choices), "text": piece })
        }
    }
}

/// A message and whether it is a request.
fn message(choices: &mut Bytes, next: i64) -> (Value, bool) {
    let note = |method: &str, params: Value| (json!({ "jsonrpc": "2.0", "method": method, "params": params }), false);
    match choices.below(16) {
        0 | 1 => {
            let document = json!({ "uri": uri(choices), "languageId": "python", "version": 1, "text": text(choices) });
            note("textDocument/didOpen", json!({ "textDocument": document }))
        }
        2..=5 => {
            let document = json!({ "uri": uri(choices), "version": choices.byte() });
            let changes: Vec<Value> = (0..=choices.below(3)).map(|_| change(choices)).collect();
            note("textDocument/didChange", json!({ "textDocument": document, "contentChanges": changes }))
        }
        6 => note("textDocument/didClose", json!({ "textDocument": { "uri": uri(choices) } })),
        7 => note("textDocument/didSave", json!({ "textDocument": { "uri": uri(choices) } })),
        8 => {
            let changes = json!([{ "uri": uri(choices), "type": choices.below(5) }]);
            note("workspace/didChangeWatchedFiles", json!({ "changes": changes }))
        }
        9 => {
            let choice = choices.byte();
            if choice & 6 == 6 {
                let added = json!([{ "uri": uri(choices), "name": "added" }]);
                let gone = if choice & 8 == 0 { json!([root()]) } else { json!([]) };
                let event = json!({ "event": { "added": added, "removed": gone } });
                return note("workspace/didChangeWorkspaceFolders", event);
            }
            let settings = json!({ "inlayHints": choice & 1 == 0, "config": choices.pick(&NAMES) });
            note("workspace/didChangeConfiguration", json!({ "settings": settings }))
        }
        10 => note("$/cancelRequest", json!({ "id": next - choices.below(3) as i64 - 1 })),
        kind => {
            let method = choices.pick(&ASKED).copied().unwrap_or("textDocument/hover");
            let mut params = json!({
                "textDocument": { "uri": uri(choices) },
                "position": position(choices),
                "range": range(choices),
                "context": { "diagnostics": [] },
            });
            if kind == 15 {
                // Something that does not fit.
                let key = ["textDocument", "position", "range", "context"][choices.below(4)];
                params[key] = [json!(null), json!([]), json!({}), json!("x"), json!(1)][choices.below(5)].clone();
            }
            (json!({ "jsonrpc": "2.0", "id": next, "method": method, "params": params }), true)
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    start();
    let mut choices = Bytes::new(bytes);
    let kind = choices.byte();
    let encodings = [json!(["utf-8"]), json!(["utf-16"]), json!([]), json!(["utf-32"])][usize::from(kind >> 1 & 3)].clone();
    // Without a folder every document brings its own.
    let roots = if kind & 8 == 0 { json!([root()]) } else { json!([]) };
    let capabilities = json!({ "general": { "positionEncodings": encodings } });
    let params = json!({ "processId": null, "rootUri": null, "capabilities": capabilities, "workspaceFolders": roots });
    let first = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let (mut session, mut asked) = (framed(&first), 1);
    if kind & 1 == 0 {
        for _ in 0..MOST_MESSAGES {
            if choices.is_empty() {
                break;
            }
            let (message, is_request) = message(&mut choices, asked + 1);
            asked += i64::from(is_request);
            session.extend(framed(&message));
        }
        // The thread that checks answers in order: with this one everything before it is done.
        asked += 1;
        let document = json!({ "uri": format!("file://{}/one.py", folder().display()) });
        let params = json!({ "textDocument": document });
        let last = json!({ "jsonrpc": "2.0", "id": asked, "method": "textDocument/documentSymbol", "params": params });
        session.extend(framed(&last));
    } else {
        session.extend_from_slice(choices.rest());
    }
    let heard = Shared::default();
    let mouth = Mouth { bytes: session, at: 0, asked, heard: heard.clone() };
    lsp::serve_on(mouth, Ear(heard.clone()));
    let heard = heard.0.lock().expect("nobody panics with it");
    let twice = heard.answers.iter().find(|(id, times)| **times > 1 && **id <= asked && kind & 1 == 0);
    assert_eq!(twice, None, "answered more than once");
});
