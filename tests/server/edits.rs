//! A session of random edits against a fresh check. In: the corpus, a number that decides all edits; `SPMD_CHECK_EDITS` sets how many. Out:
//! the same findings. Never: a file of the repository changed. The same over any tree: `scripts/edits.py`.

use super::client::{Client, Folder, uri};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Numbers that look random and are not.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n.max(1) as u64).unwrap_or(0)
    }
}

fn copy(from: &Path, folder: &Folder, below: &str, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        let name = format!("{below}/{}", path.file_name().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            copy(&path, folder, &name, out);
        } else if name.ends_with(".py") {
            let text = std::fs::read_to_string(&path).expect("the corpus is text");
            out.push(folder.write(name.trim_start_matches('/'), &text));
        }
    }
}

/// A line of the text changed, one way or another.
fn edited(text: &str, chance: &mut Chance) -> String {
    let mut lines: Vec<String> = text.split('\n').map(str::to_string).collect();
    let at = chance.below(lines.len());
    match chance.below(8) {
        0 => lines[at].push_str("  # a note"),
        1 if lines.len() > 1 => drop(lines.remove(at)),
        2 => lines.insert(at, lines[at].clone()),
        3 => lines.insert(at, String::new()),
        4 => lines.insert(at, "def added(x):\n    return all_reduce(x)\n\n".to_string()),
        5 => lines[at] = lines[at].replace("forward", "backward").replace("True", "False").replace("self", "this"),
        6 => {
            let other = lines[chance.below(text.split('\n').count())].trim_start().to_string();
            let indent: String = lines[at].chars().take_while(|c| *c == ' ').collect();
            lines[at] = indent + &other;
        }
        _ => {
            let places: Vec<usize> = lines[at].char_indices().map(|(i, _)| i).collect();
            if let Some(i) = places.get(chance.below(places.len())) {
                lines[at].insert_str(*i, ["(", "x", " ", "é", "\"", ".", "😀", "="][chance.below(8)]);
            }
        }
    }
    lines.join("\n")
}

pub type Shown = (String, [u64; 4], String, String);

pub fn heard(client: &Client, root: &Path) -> Vec<Shown> {
    let start = format!("{}/", uri(root));
    let mut out = Vec::new();
    for (address, (_, list)) in &client.diagnostics {
        for d in list {
            let at = |side: &str, part: &str| d["range"][side][part].as_u64().unwrap_or(0) + 1;
            let range = [at("start", "line"), at("start", "character"), at("end", "line"), at("end", "character")];
            let message = d["message"].as_str().unwrap_or_default().lines().next().unwrap_or_default().to_string();
            let path = address.strip_prefix(&start).unwrap_or(address).to_string();
            out.push((path, range, d["code"].as_str().unwrap_or_default().to_string(), message));
        }
    }
    out.sort();
    out
}

pub fn fresh(root: &Path) -> Vec<Shown> {
    let run = Command::new(env!("CARGO_BIN_EXE_spmd-check"))
        .args(["check", "-q", "--output-format", "json"])
        .current_dir(root)
        .output()
        .expect("the program runs");
    let list: Vec<Value> = serde_json::from_slice(&run.stdout).expect("a list");
    let mut out = Vec::new();
    for d in list {
        let at = |side: &str, part: &str| d["range"][side][part].as_u64().unwrap_or(0);
        let range = [at("start", "line"), at("start", "column"), at("end", "line"), at("end", "column")];
        let text = |name: &str| d[name].as_str().unwrap_or_default().to_string();
        out.push((text("path"), range, text("code"), text("message")));
    }
    out.sort();
    out
}

#[test]
fn random_edits_end_with_the_findings_of_a_fresh_check() {
    let count: usize = std::env::var("SPMD_CHECK_EDITS").ok().and_then(|n| n.parse().ok()).unwrap_or(120);
    let folder = Folder::new("edits");
    let mut paths = Vec::new();
    for part in ["corpus/tour", "corpus/clean/megatron", "corpus/clean/hf", "corpus/bugs"] {
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join(part), &folder, part, &mut paths);
    }
    let mut chance = Chance(0x2545_f491_4f6c_dd1d);
    let mut client = Client::new(&[&folder.0], &["utf-32"]);
    let mut open: BTreeMap<PathBuf, (i64, String)> = BTreeMap::new();
    for _ in 0..10 {
        let path = paths[chance.below(paths.len())].clone();
        let (text, _) = client.open_file(&path);
        open.insert(path, (1, text));
    }
    let open_paths: Vec<PathBuf> = open.keys().cloned().collect();
    let mut undo: Option<(PathBuf, String)> = None;
    for number in 1..=count {
        let (path, text) = match undo.take().filter(|_| chance.below(10) < 6) {
            Some(before) => before,
            None => {
                let path = open_paths[chance.below(open_paths.len())].clone();
                let before = open[&path].1.clone();
                let text = edited(&before, &mut chance);
                undo = Some((path.clone(), before));
                (path, text)
            }
        };
        let document = open.get_mut(&path).expect("it is open");
        *document = (document.0 + 1, text.clone());
        client.change_by(&path, document.0, json!([{ "text": text }]));
        if number % 40 == 0 || number == count {
            client.settle(&path);
            open.iter().for_each(|(path, (_, text))| std::fs::write(path, text).expect("a file can be written"));
            assert_eq!(heard(&client, &folder.0), fresh(&folder.0), "after {number} edits");
        }
    }
    assert_eq!(client.end(), Some(0));
}
