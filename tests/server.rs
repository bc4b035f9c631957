//! The language server as an editor meets it: the built program over its standard streams. In: small trees, the corpus. Out: every message
//! answered, the findings of a fresh check. Never: calling into the library. Next: `server/client.rs`, then the other
//! files of `server/`.

#[path = "server/client.rs"]
mod client;
#[path = "server/edits.rs"]
mod edits;
#[path = "server/reads.rs"]
mod reads;
#[path = "server/strays.rs"]
mod strays;

use client::{Client, Folder, position, uri};
use serde_json::{Value, json};
use std::path::Path;

const LOST: &str =
    "import torch.distributed as dist\n\n\ndef f(x):\n    dist.all_reduce(x.contiguous())\n    return x\n";
const RIGHT: &str = "import torch.distributed as dist\n\n\ndef f(x):\n    dist.all_reduce(x)\n    return x\n";

fn tour() -> Folder {
    let folder = Folder::new(&format!("tour-{:?}", std::thread::current().id()).replace(['(', ')'], ""));
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/tour/block.py"));
    folder.write("block.py", &text.expect("the tour is there"));
    folder
}

#[test]
fn a_connection_begins_and_ends_in_order() {
    let mut client = Client::silent();
    let early = client.request("textDocument/hover", json!({}));
    assert_eq!(early["error"]["code"], -32002);
    let answer = client.request("initialize", json!({ "capabilities": {} }));
    assert_eq!(answer["result"]["capabilities"]["positionEncoding"], "utf-16");
    client.notify("initialized", json!({}));
    let again = client.request("initialize", json!({ "capabilities": {} }));
    assert_eq!(again["error"]["code"], -32600);
    let unknown = client.request("textDocument/foldingRange", json!({}));
    assert_eq!(unknown["error"]["code"], -32601);
    let wrong = client.request("textDocument/hover", json!({ "textDocument": 3 }));
    assert_eq!(wrong["error"]["code"], -32602);
    let nowhere = json!({ "textDocument": { "uri": "untitled:x" }, "position": { "line": 0, "character": 0 } });
    assert!(client.request("textDocument/hover", nowhere)["result"].is_null());
    client.notify("$/somethingElse", json!({}));
    client.notify("textDocument/didChange", json!({ "nothing": true }));
    assert!(client.request("shutdown", Value::Null)["result"].is_null());
    assert_eq!(client.request("textDocument/hover", json!({}))["error"]["code"], -32600);
    client.notify("exit", Value::Null);
    assert_eq!(client.code(), Some(0));
}

#[test]
fn an_end_without_shutdown_is_told_by_the_exit_code() {
    let folder = Folder::new("end");
    let mut client = Client::new(&[&folder.0], &[]);
    client.notify("exit", Value::Null);
    assert_eq!(client.code(), Some(1));
    let mut client = Client::new(&[&folder.0], &[]);
    client.close_input();
    assert_eq!(client.code(), Some(1));
}

#[test]
fn rubbish_is_refused_and_the_server_goes_on() {
    let folder = Folder::new("rubbish");
    let path = folder.write("a.py", LOST);
    let mut client = Client::new(&[&folder.0], &["utf-8"]);
    client.bytes(b"Content-Length: 9\r\n\r\n{\"a\": 1,}");
    assert_eq!(client.answer(&Value::Null)["error"]["code"], -32700);
    client.bytes(b"Content-Length: 4\r\n\r\n\xff\xfe\x00\x01");
    assert_eq!(client.answer(&Value::Null)["error"]["code"], -32700);
    client.bytes(b"nonsense\r\n");
    assert_eq!(client.answer(&Value::Null)["error"]["code"], -32700);
    client.send(&json!([1, 2]));
    assert_eq!(client.answer(&Value::Null)["error"]["code"], -32600);
    client.change_by(&path, 9, json!([{ "text": "x" }]));
    assert_eq!(client.open(&path, LOST).len(), 1);
    let change = json!([{ "range": { "start": { "line": 900, "character": 7 }, "end": { "line": 3, "character": 99 } }, "text": "" }]);
    client.change_by(&path, 2, change);
    client.until(&path, 2);
    assert_eq!(client.change(&path, 3, LOST).len(), 1);
    assert_eq!(client.end(), Some(0));
}

#[test]
fn findings_follow_the_text_that_is_not_saved() {
    let folder = Folder::new("text");
    let path = folder.write("a.py", RIGHT);
    let mut client = Client::new(&[&folder.0], &["utf-16"]);
    assert!(client.open(&path, RIGHT).is_empty());
    let found = client.change(&path, 2, LOST);
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0]["code"], &found[0]["source"]), (&json!("SPMD601"), &json!("spmd-check")));
    assert_eq!(found[0]["range"]["start"], json!({ "line": 4, "character": 4 }));
    // A name in front moves it, in units of the encoding.
    let change = json!([{ "range": { "start": { "line": 3, "character": 0 }, "end": { "line": 3, "character": 0 } }, "text": "y = '😀'\n" }]);
    client.change_by(&path, 3, change);
    assert_eq!(client.until(&path, 3)[0]["range"]["start"]["line"], 5);
    client.notify("textDocument/didSave", json!({ "textDocument": { "uri": uri(&path) } }));
    // Closed, the file counts again.
    client.notify("textDocument/didClose", json!({ "textDocument": { "uri": uri(&path) } }));
    client.settle(&path);
    assert!(client.codes(&path).is_empty());
    // A new file that is on no disk.
    let new = folder.0.join("new.py");
    assert_eq!(client.open(&new, LOST).len(), 1);
    assert_eq!(client.end(), Some(0));
}

#[test]
fn findings_appear_in_files_that_depend_on_the_change() {
    let folder = Folder::new("across");
    let helper = |kind: &str| {
        format!(
            "# spmd: mesh dense = dp, tp\n\n\ndef make(x):  # spmd: x: {{tp: V}} -> {{tp: {kind}}}\n    return other(x)\n"
        )
    };
    let user = "from helper import make\n\n\ndef use(x):  # spmd: x: {tp: V} -> {tp: R}\n    return make(x)\n";
    let (a, b) = (folder.write("helper.py", &helper("R")), folder.write("user.py", user));
    let mut client = Client::new(&[&folder.0], &["utf-8"]);
    assert!(client.open(&a, &helper("R")).is_empty());
    assert!(client.open(&b, user).is_empty());
    client.change(&a, 2, &helper("P"));
    client.settle(&a);
    assert_eq!(client.codes(&b).len(), 1, "{:?}", client.diagnostics);
    let (_, list) = &client.diagnostics[&uri(&b)];
    assert!(list[0]["relatedInformation"].as_array().is_some_and(|l| !l.is_empty()), "{list:?}");
    client.change(&a, 3, &helper("R"));
    client.settle(&a);
    assert!(client.codes(&b).is_empty());
    assert_eq!(client.end(), Some(0));
}

#[test]
fn hover_hints_symbols_and_producers() {
    let folder = tour();
    let path = folder.0.join("block.py");
    let mut client = Client::new(&[&folder.0], &["utf-16"]);
    let (text, found) = client.open_file(&path);
    assert_eq!(found.len(), 1);
    let x = position(&text, "F.linear(x, self.w_in)", 9);
    let hover = client.at("textDocument/hover", &path, &x)["contents"]["value"].to_string();
    assert!(hover.contains("tp: I") || hover.contains("tp: "), "{hover}");
    assert!(hover.contains("gradient") && hover.contains("block.py:"), "{hover}");
    let call = position(&text, "reduce_from_tensor_model_parallel_region(out)", 5);
    let hover = client.at("textDocument/hover", &path, &call)["contents"]["value"].to_string();
    assert!(hover.contains("forward `all_reduce") && hover.contains("backward `"), "{hover}");
    for method in ["textDocument/definition", "textDocument/typeDefinition"] {
        let places = client.at(method, &path, &x);
        assert!(places.as_array().is_some_and(|l| !l.is_empty() && l[0]["uri"] == json!(uri(&path))), "{places}");
    }
    let whole = json!({ "start": { "line": 0, "character": 0 }, "end": { "line": 999, "character": 0 } });
    let asked = json!({ "textDocument": { "uri": uri(&path) }, "range": whole });
    let hints = client.request("textDocument/inlayHint", asked)["result"].clone();
    let lines: Vec<&str> = text.lines().collect();
    let hints = hints.as_array().expect("a list").clone();
    assert!(!hints.is_empty());
    for hint in &hints {
        let (line, column) = (hint["position"]["line"].as_u64(), hint["position"]["character"].as_u64());
        let line = lines[usize::try_from(line.expect("a number")).expect("small")];
        let head = &line[..usize::try_from(column.expect("a number")).expect("small")];
        assert!(head.ends_with(|c: char| c.is_alphanumeric() || c == '_'), "{hint} in {line:?}");
    }
    let symbols = client.request("textDocument/documentSymbol", json!({ "textDocument": { "uri": uri(&path) } }));
    let names = symbols["result"].to_string();
    assert!(names.contains("forward") && names.contains("children"), "{names}");
    assert_eq!(client.end(), Some(0));
}

/// The text after an edit of an action.
fn edited(text: &str, action: &Value, path: &Path) -> String {
    let edits = action["edit"]["changes"][&uri(path)].as_array().expect("edits").clone();
    let mut text = text.to_string();
    for edit in edits {
        let offset = |position: &Value| {
            let line = usize::try_from(position["line"].as_u64().expect("a line")).expect("small");
            let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
            start + usize::try_from(position["character"].as_u64().expect("a column")).expect("small")
        };
        let (a, b) = (offset(&edit["range"]["start"]), offset(&edit["range"]["end"]));
        text.replace_range(a..b, edit["newText"].as_str().expect("a text"));
    }
    text
}

#[test]
fn actions_repair_suppress_and_annotate() {
    let folder = tour();
    let path = folder.0.join("block.py");
    let mut client = Client::new(&[&folder.0], &["utf-8"]);
    let (text, found) = client.open_file(&path);
    let asked = |range: &Value| json!({ "textDocument": { "uri": uri(&path) }, "range": range, "context": { "diagnostics": [] } });
    let actions = client.request("textDocument/codeAction", asked(&found[0]["range"]))["result"].clone();
    let actions = actions.as_array().expect("a list").clone();
    let named = |start: &str| actions.iter().find(|a| a["title"].as_str().is_some_and(|t| t.starts_with(start)));
    let repairs: Vec<String> = actions
        .iter()
        .filter(|a| a["title"].as_str().is_some_and(|t| t.starts_with("Repair")))
        .map(|a| edited(&text, a, &path))
        .collect();
    let mut version = 10;
    let works = repairs.iter().filter(|repair| {
        version += 1;
        client.change(&path, version, repair).is_empty()
    });
    assert!(works.count() > 0, "{repairs:?}");
    let suppressed = edited(&text, named("Suppress").expect("a suppression"), &path);
    assert!(suppressed.contains("# spmd: ignore[invariant-mixed] reason"), "{suppressed}");
    assert!(client.change(&path, 103, &suppressed).is_empty(), "{suppressed}");
    let plain = "from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region\n\n\ndef f(x):\n    return copy_to_tensor_model_parallel_region(x)\n";
    client.change(&path, 104, plain);
    let place = position(plain, "return", 0);
    let range = json!({ "start": place, "end": place });
    let actions = client.request("textDocument/codeAction", asked(&range))["result"].clone();
    let write = actions.as_array().and_then(|l| l.iter().find(|a| a["kind"] == "refactor.rewrite")).cloned();
    let annotated = edited(plain, &write.expect("a signature to write"), &path);
    assert!(annotated.contains("\n# spmd: x: {tp: I} -> {tp: R}\ndef f(x):"), "{annotated}");
    assert!(client.change(&path, 105, &annotated).is_empty(), "{annotated}");
    assert_eq!(client.end(), Some(0));
}

#[test]
fn each_folder_has_its_configuration_which_is_read_again() {
    let (a, b) = (Folder::new("multi-a"), Folder::new("multi-b"));
    let (x, y) = (a.write("x.py", LOST), b.write("y.py", LOST));
    b.write("spmd-check.toml", "[levels]\nlost-result = \"off\"\n");
    let mut client = Client::new(&[&a.0, &b.0], &["utf-8"]);
    assert_eq!(client.open(&x, LOST).len(), 1);
    assert!(client.open(&y, LOST).is_empty());
    let event = |path: &Path, kind: u32| json!({ "changes": [{ "uri": uri(path), "type": kind }] });
    let config = b.write("spmd-check.toml", "");
    client.notify("workspace/didChangeWatchedFiles", event(&config, 2));
    client.settle(&y);
    assert_eq!(client.codes(&y).len(), 1);
    let config = a.write("spmd-check.toml", "[levels]\nno-such-thing = \"off\"\n");
    client.notify("workspace/didChangeWatchedFiles", event(&config, 2));
    client.settle(&y);
    assert_eq!(client.codes(&config).len(), 1, "{:?}", client.diagnostics);
    a.write("spmd-check.toml", "");
    client.notify("workspace/didChangeConfiguration", json!({ "settings": {} }));
    client.settle(&x);
    assert!(client.codes(&config).is_empty() && client.codes(&x).len() == 1, "{:?}", client.diagnostics);
    let gone = json!({ "event": { "added": [], "removed": [{ "uri": uri(&b.0), "name": "folder" }] } });
    client.notify("workspace/didChangeWorkspaceFolders", gone);
    client.settle(&x);
    // A file that appears on the disk.
    let new = a.write("new.py", LOST);
    client.notify("workspace/didChangeWatchedFiles", event(&new, 1));
    client.settle(&x);
    assert_eq!(client.codes(&new).len(), 1);
    assert_eq!(client.end(), Some(0));
}

#[test]
fn requests_can_be_cancelled_and_loading_shows_progress() {
    let folder = tour();
    let path = folder.0.join("block.py");
    let mut client = Client::new(&[&folder.0], &["utf-8"]);
    let first = client.ask("textDocument/documentSymbol", json!({ "textDocument": { "uri": uri(&path) } }));
    client.notify("$/cancelRequest", json!({ "id": first }));
    let answer = client.answer(&json!(first));
    assert!(answer["error"]["code"] == -32800 || answer.get("result").is_some(), "{answer}");
    client.notify("$/cancelRequest", json!({ "id": 12345 }));
    client.open_file(&path);
    let kinds: Vec<String> = client
        .heard
        .iter()
        .filter(|m| m["method"] == "$/progress")
        .filter_map(|m| m["params"]["value"]["kind"].as_str().map(str::to_string))
        .collect();
    assert_eq!(kinds, ["begin", "end"]);
    assert!(client.heard.iter().any(|m| m["method"] == "client/registerCapability"));
    assert_eq!(client.end(), Some(0));
}

#[test]
fn a_file_outside_every_folder_is_checked_with_its_project() {
    let folder = Folder::new("alone");
    let path = folder.write("a.py", LOST);
    let mut client = Client::new(&[], &["utf-8"]);
    assert_eq!(client.open(&path, LOST).len(), 1);
    assert_eq!(client.end(), Some(0));
}
