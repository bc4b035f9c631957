//! Documents that lie in no folder of the client. In: sessions, one of which the fuzzer found. Out: answers to every request, and findings of
//! what belongs to the document. Never: the whole of a disk or of what a person owns being read. Next: `client.rs`.

use super::LOST;
use super::client::{Client, Folder, uri};
use serde_json::{Value, json};

/// A folder that nothing marks as a project.
fn unmarked(name: &str) -> Folder {
    let folder = Folder::new(name);
    std::fs::remove_file(folder.0.join("spmd-check.toml")).expect("it is there");
    folder
}

/// The fuzzer's session: `deep` is a host, so that the path of the document is `/three.py`, and nothing is around it but the disk.
#[test]
fn a_document_of_another_machine_holds_nobody_up() {
    let folder = Folder::new("host");
    let path = folder.write("one.py", LOST);
    let stray = "file://deep/three.py";
    let mut client = Client::new(&[&folder.0], &["utf-16"]);
    let place = |line: u32, character: u32| json!({ "line": line, "character": character });
    let about = |uri: &str| {
        let range = json!({ "start": place(57, 58), "end": place(51, 36) });
        let context = json!({ "diagnostics": [] });
        json!({ "textDocument": { "uri": uri }, "position": place(31, 48), "range": range, "context": context })
    };
    let new = uri(&folder.0.join("a%20b%25.py"));
    let mut asked = vec![client.ask("textDocument/rename", about(&new))];
    let document = json!({ "uri": stray, "languageId": "python", "version": 1, "text": LOST });
    client.notify("textDocument/didOpen", json!({ "textDocument": document }));
    client.notify("$/cancelRequest", json!({ "id": 0 }));
    let changes = json!([{ "range": { "start": place(59, 44), "end": place(85, 54) }, "text": "" }]);
    let document = json!({ "uri": "untitled:a b%.py", "version": 231 });
    client.notify("textDocument/didChange", json!({ "textDocument": document, "contentChanges": changes }));
    asked.push(client.ask("textDocument/inlayHint", about(&new)));
    asked.push(client.ask("textDocument/rename", about(&new)));
    asked.push(client.ask("textDocument/hover", about(stray)));
    asked.push(client.ask("textDocument/documentSymbol", json!({ "textDocument": { "uri": uri(&path) } })));
    let mut answers: Vec<(Value, bool)> = Vec::new();
    while answers.len() < asked.len() {
        let message = client.take();
        if message.get("method").is_none() {
            answers.push((message["id"].clone(), message.get("error").is_some()));
        }
    }
    answers.sort_by_key(|(id, _)| id.as_i64());
    let refused = [true, false, true, false, false];
    let expected: Vec<(Value, bool)> = asked.iter().map(|id| json!(id)).zip(refused).collect();
    assert_eq!(answers, expected);
    assert!(!client.diagnostics.contains_key(stray), "{:?}", client.diagnostics);
    assert_eq!(client.end(), Some(0));
}

#[test]
fn without_a_project_around_it_a_file_is_checked_with_its_neighbours() {
    let folder = unmarked("flat");
    let (one, beside) = (folder.write("one.py", LOST), folder.write("beside.py", LOST));
    let below = folder.write("below/deep.py", LOST);
    let mut client = Client::new(&[], &["utf-8"]);
    assert_eq!(client.open(&one, LOST).len(), 1);
    client.settle(&one);
    assert_eq!(client.codes(&beside).len(), 1);
    assert!(client.codes(&below).is_empty(), "{:?}", client.diagnostics);
    // It lies in no folder that is loaded, and brings its own.
    assert_eq!(client.open(&below, LOST).len(), 1);
    client.notify("workspace/didChangeConfiguration", json!({ "settings": {} }));
    assert_eq!(client.change(&one, 2, &LOST.replace("f(x)", "g(x)")).len(), 1);
    assert_eq!(client.change(&below, 2, &LOST.replace("f(x)", "g(x)")).len(), 1);
    // A project from now on.
    let config = folder.write("spmd-check.toml", "[levels]\nlost-result = \"off\"\n");
    client.notify("workspace/didChangeWatchedFiles", json!({ "changes": [{ "uri": uri(&config), "type": 1 }] }));
    assert!(client.change(&one, 3, LOST).is_empty());
    assert!(client.change(&below, 3, LOST).is_empty() && client.codes(&beside).is_empty(), "{:?}", client.diagnostics);
    assert_eq!(client.end(), Some(0));
}

#[test]
fn a_file_that_its_project_leaves_out_is_not_checked() {
    let folder = Folder::new("left-out");
    folder.write("spmd-check.toml", "exclude = [\"made/\"]\n");
    let (one, made) = (folder.write("one.py", LOST), folder.write("made/two.py", LOST));
    let mut client = Client::new(&[], &["utf-8"]);
    assert!(client.open(&made, LOST).is_empty());
    assert!(client.change(&made, 2, &LOST.replace("f(x)", "g(x)")).is_empty());
    assert_eq!(client.open(&one, LOST).len(), 1);
    assert_eq!(client.end(), Some(0));
}

#[test]
fn the_top_of_the_file_system_is_no_project() {
    let (a, b) = (Folder::new("top-a"), Folder::new("top-b"));
    let (x, y) = (a.write("x.py", LOST), b.write("y.py", LOST));
    let mut client = Client::new(&["/".as_ref()], &["utf-8"]);
    assert_eq!(client.open(&x, LOST).len(), 1);
    client.settle(&x);
    assert!(client.codes(&y).is_empty(), "{:?}", client.diagnostics.keys());
    assert_eq!(client.end(), Some(0));
}

#[test]
fn a_configuration_with_mistakes_is_told_of_once() {
    let folder = Folder::new("mistakes");
    let config = folder.write("spmd-check.toml", "[levels]\nno-such-thing = \"off\"\n");
    let path = folder.write("one.py", LOST);
    let mut client = Client::new(&[], &["utf-8"]);
    client.open(&path, LOST);
    for version in 2..6 {
        client.change(&path, version, &LOST.replace("f(x)", &format!("f{version}(x)")));
    }
    let told = |client: &Client| client.heard.iter().filter(|m| m["method"] == "window/showMessage").count();
    assert_eq!(told(&client), 1);
    folder.write("spmd-check.toml", "");
    client.notify("workspace/didChangeWatchedFiles", json!({ "changes": [{ "uri": uri(&config), "type": 2 }] }));
    assert_eq!(client.change(&path, 6, LOST).len(), 1);
    assert_eq!(told(&client), 1);
    assert_eq!(client.end(), Some(0));
}

#[test]
fn a_document_that_is_no_source_is_not_checked() {
    let folder = Folder::new("settings");
    let (path, config) = (folder.write("one.py", LOST), folder.0.join("spmd-check.toml"));
    let mut client = Client::new(&[&folder.0], &["utf-8"]);
    client.open(&config, "[levels]\n");
    client.notify("workspace/didChangeConfiguration", json!({ "settings": {} }));
    client.open(&path, LOST);
    client.settle(&path);
    assert!(client.codes(&config).is_empty(), "{:?}", client.diagnostics);
    assert!(client.change(&config, 2, "[levels]\nlost-result = \n").is_empty());
    assert_eq!(client.end(), Some(0));
}
