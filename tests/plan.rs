//! `spmd-check plan` against what PyTorch does. In: `tests/oracle/redistribute.jsonl` and `shard_order.jsonl`, recorded from
//! torch 2.15 (the second by `scripts/shard_order.py`), and questions written here. Out: agreement, which is whole.
//! Never: a record that is left out. Next: `src/plan/`.

mod support;

use serde_json::{Value, json};
use spmd_check::plan::{
    Defaults, Device, Dtype, Kind, Machine, Mesh, Plan, Question, Refusal, answer, parse_placements, parse_shape,
    plan_text,
};
use std::io::Write;
use std::process::{Command, Stdio};

fn dtype(name: &str) -> Dtype {
    Dtype::parse(name).expect("the dtype is known")
}

/// The records were made on a CPU in float32.
fn recorded() -> Defaults {
    Defaults { dtype: dtype("f32"), machine: Machine::new(Device::Cpu, None) }
}

fn ask(line: &str) -> Value {
    let answer = answer(line.as_bytes(), 1, recorded()).expect("a line that is not empty has an answer");
    serde_json::from_str(&answer.line).expect("an answer is JSON")
}

/// A question on GPUs.
fn question(mesh: &str, shape: &str, dtype_name: &str, source: &str, target: &str) -> Result<Question, Refusal> {
    let mesh = Mesh::parse(mesh).map_err(Refusal::input)?;
    let shape = parse_shape(shape).map_err(Refusal::input)?;
    let source = parse_placements(source).map_err(Refusal::input)?;
    let target = parse_placements(target).map_err(Refusal::input)?;
    let machine = Machine::new(Device::Cuda, None);
    Question::new(mesh, shape, dtype(dtype_name), machine, &source, &target)
}

fn plan(mesh: &str, shape: &str, source: &str, target: &str) -> (Question, Plan) {
    let question = question(mesh, shape, "bf16", source, target).unwrap_or_else(|refusal| panic!("{refusal:?}"));
    let plan = question.plan().unwrap_or_else(|refusal| panic!("{refusal:?}"));
    (question, plan)
}

fn refusal(mesh: &str, shape: &str, source: &str, target: &str) -> Refusal {
    let answered = question(mesh, shape, "f32", source, target).and_then(|question| question.plan());
    answered.expect_err("this is refused")
}

/// Answers every record of a file and compares what it says.
fn agreement(path: &str, least: usize) {
    let text = support::read(path);
    let mut different = Vec::new();
    let mut count = 0;
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).expect("a record is JSON");
        let ours = ask(line);
        count += 1;
        for key in ["steps", "forward", "backward", "error", "backward_error"] {
            if record.get(key) != ours.get(key) {
                different.push(format!("{line}\n    {key}: {:?}", ours.get(key)));
            }
        }
    }
    println!("{path}: {} of {count} records differ", different.len());
    assert!(count >= least, "{path} has {count} records");
    assert!(different.is_empty(), "{path}:\n  {}", different.join("\n  "));
}

#[test]
fn every_recorded_redistribute_is_planned_as_pytorch_does() {
    agreement("tests/oracle/redistribute.jsonl", 2714);
}

#[test]
fn every_recorded_order_of_shards_is_planned_as_pytorch_does() {
    agreement("tests/oracle/shard_order.jsonl", 540);
}

/// The states are printed as `stringify_transform_infos` prints them.
#[test]
fn states_are_printed_as_pytorch_prints_them() {
    for line in support::read("tests/oracle/shard_order.jsonl").lines() {
        let record: Value = serde_json::from_str(line).expect("a record is JSON");
        let Some(trace) = record.get("trace").and_then(Value::as_str) else { continue };
        let sizes = |key: &str| -> Vec<u64> { serde_json::from_value(record[key].clone()).expect("sizes") };
        let placements = |key: &str| {
            let words: Vec<String> = serde_json::from_value(record[key].clone()).expect("placements");
            parse_placements(&words.join(", ")).expect("placements of the run time")
        };
        let mesh = Mesh::of_sizes(sizes("mesh")).expect("a mesh");
        let (Defaults { dtype, machine }, source, target) = (recorded(), placements("src"), placements("dst"));
        let question = Question::new(mesh, sizes("shape"), dtype, machine, &source, &target).expect("a question");
        assert_eq!(question.plan().expect("a plan").forward.trace, trace, "{line}");
    }
}

/// The README shows what the command prints.
#[test]
fn the_readme_shows_the_plan() {
    let (question, plan) = plan("dp=2,tp=4", "16,16", "S(0), S(0)", "R, S(0)");
    let text = plan_text(&question, &plan);
    assert!(support::read("README.md").contains(&text), "README.md does not have\n{text}");
}

#[test]
fn bytes_are_those_of_a_ring_with_padding() {
    let sent =
        |mesh: &str, shape: &str, source: &str, target: &str| plan(mesh, shape, source, target).1.forward.bytes();
    // 16 * 16 elements of 2 bytes on 4 ranks.
    assert_eq!(sent("4", "16,16", "S(0)", "R"), 3 * 128);
    assert_eq!(sent("4", "16,16", "P", "S(1)"), 3 * 128);
    assert_eq!(sent("4", "16,16", "P", "R"), 2 * 3 * 128);
    assert_eq!(sent("4", "16,16", "S(0)", "S(1)"), 3 * 32);
    assert_eq!(sent("4", "16,16", "R", "S(1)"), 0);
    assert_eq!(sent("4", "16,16", "S(0)", "P"), 0);
    // 5 rows on 4 ranks are padded to 8.
    assert_eq!(sent("4", "5,3", "S(0)", "R"), 3 * 2 * 3 * 2);
    assert_eq!(sent("4", "0,3", "S(0)", "R"), 0);
    assert_eq!(sent("4", "", "P", "R"), 2 * 3 * 2);
    assert_eq!(sent("1,4", "16,16", "S(0), R", "R, R"), 0);
}

#[test]
fn placements_are_read_as_written_and_as_printed() {
    let same = [
        "S(0), S(1), P(avg)",
        "[Shard(0), Shard(dim=-1), Partial(\"avg\")]",
        "S(0)S(1)P(avg)",
        "(S(-2),S(1),Partial(reduce_op='avg'))",
    ];
    let read = same.map(|text| question("2,2,2", "4,4", "f32", text, "R, R, R").expect(text).source);
    assert!(read.iter().all(|placements| *placements == read[0]), "{read:?}");
    let order = question("2,4", "16,16", "f32", "S(0)[1]S(0)[0]", "R, R").expect("an order").source;
    let strided =
        question("2,4", "16,16", "f32", "_StridedShard(dim=0, sf=4), S(0)", "R, R").expect("a strided shard").source;
    assert_eq!(order, strided);
    assert_eq!(plan("2,4", "16,16", "S(0)[1]S(0)[0]", "R, R").1.forward.trace, "S(0)[1]S(0)[0]->RS(0)->RR");
}

#[test]
fn what_pytorch_refuses_is_refused_in_its_words_and_ours() {
    let cases = [
        (
            "R",
            "P",
            Kind::RuntimeError,
            "Can not redistribute from R to P(sum), only Shard to Partial(sum) redistribution is supported!",
        ),
        (
            "S(0)",
            "P(max)",
            Kind::RuntimeError,
            "Can not redistribute from S(0) to P(max), only Shard to Partial(sum) redistribution is supported!",
        ),
        (
            "_S(0, 2)",
            "P",
            Kind::RuntimeError,
            "Can not redistribute from _S(0, 2) to P(sum), only Shard to Partial(sum) redistribution is supported!",
        ),
        ("S(2)", "R", Kind::RuntimeError, "Sharding dim 2 greater than tensor ndim 2 for placement number 0"),
        (
            "S(-3)",
            "R",
            Kind::RuntimeError,
            "Shard placements should have negative dims normalized in the user-facing APIs: S(-1)",
        ),
        ("R", "S(2)", Kind::IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got 2)"),
        ("R", "S(5)", Kind::AssertionError, "Sharding dim 5 greater than tensor ndim 2"),
        ("R", "S(-3)", Kind::AssertionError, "Shard dim -1 in placements (Shard(dim=-1),) must be normalized"),
    ];
    for (source, target, kind, text) in cases {
        let found = refusal("8", "16,16", source, target);
        assert_eq!((found.kind, found.text.as_str()), (kind, text));
        assert!(!found.words.is_empty() && found.words != found.text);
    }
    let mixed = refusal("2,4", "16,16", "P(max), P(sum)", "R, R");
    assert_eq!(mixed.kind, Kind::ValueError);
    assert!(mixed.text.contains("{'sum', 'max'}"), "{}", mixed.text);
    let late = refusal("2,4", "16,16", "P(max), S(0)", "P(max), P(sum)");
    assert_eq!(late.kind, Kind::ValueError);
}

#[test]
fn a_wrong_question_is_answered_with_what_is_wrong() {
    let cases = [
        ("2,4", "16,16", "R", "R, R", "the source has 1 placement, but the mesh has 2 dims"),
        ("2,4", "16,16", "R, R", "R, R, R", "the target has 3 placements, but the mesh has 2 dims"),
        ("2,0", "16,16", "R, R", "R, R", "a mesh dim has size 0"),
        ("", "16,16", "R", "R", "the mesh has no dims; write it as `dp=2,tp=4` or `2,4`"),
        ("a=2,a=4", "16,16", "R", "R", "two mesh dims are called `a`"),
        ("a=2,4", "16,16", "R", "R", "either all mesh dims have a name or none"),
        ("2", "16,x", "R", "R", "`x` is not the size of a tensor dim"),
        ("2", "-1", "R", "R", "`-1` is not the size of a tensor dim"),
        ("2", "16", "X", "R", "`X` is not a placement; they are R, S(0), P(sum) and _S(0, 2)"),
        ("2", "16", "Rubbish", "R", "`Rubbish` is not a placement; they are R, S(0), P(sum) and _S(0, 2)"),
        ("2", "16", "S(0", "R", "`S(0` has a `(` that is not closed"),
        ("2", "16", "S(x)", "R", "`S(x)`: `x` is not a whole number"),
        ("2", "16", "S", "R", "`S`: a Shard has one argument, its tensor dim"),
        ("2", "16", "_S(0, 0)", "R", "`_S(0, 0)`: the split factor 0 is not positive"),
        ("2,2", "16", "R,,R", "R", "a placement is missing between two commas"),
        ("2,2", "16", "S(0)[1]S(0)[1]", "R, R", "two shards of tensor dim 0 have place [1] in its order"),
        (
            "2,2",
            "16",
            "S(0)[1]S(0)",
            "R, R",
            "the order of the shards of tensor dim 0 must give each of them a place, 0 to 1",
        ),
        ("4294967296,4294967296", "16", "R, R", "R, R", "the mesh has more ranks than can be"),
        ("2", "99999999999999,99999999999999", "R", "R", "the shape has more elements than a tensor can have"),
    ];
    for (mesh, shape, source, target, words) in cases {
        let found = refusal(mesh, shape, source, target);
        assert_eq!((found.kind, found.words.as_str()), (Kind::InputError, words));
    }
}

#[test]
fn a_dtype_without_gradient_has_no_backward() {
    let question = question("2", "16", "int64", "S(0)", "R").expect("a question");
    let plan = question.plan().expect("a plan");
    assert!(plan.backward.is_none());
    assert!(plan_text(&question, &plan).contains("backward: none, i64 has no gradient"));
}

/// Eight mesh dims and three tensor dims have more orders than anybody waits for.
#[test]
fn a_search_that_would_not_end_is_given_up() {
    let source = ["S(0)[7]", "S(0)[6]", "S(0)[5]", "S(0)[4]", "S(0)[3]", "S(0)[2]", "S(0)[1]", "S(0)[0]"].join(", ");
    let target = ["S(1)"; 8].join(", ");
    let answered =
        question("2,2,2,2,2,2,2,2", "256,256,256", "f32", &source, &target).and_then(|question| question.plan());
    match answered {
        Ok(plan) => assert!(!plan.forward.steps.is_empty()),
        Err(refusal) => assert_eq!(refusal.kind, Kind::InputError),
    }
}

#[test]
fn a_batch_answers_every_line() {
    let good = r#"{"id": 7, "mesh": [8], "shape": [16, 16], "src": ["S(0)"], "dst": ["R"]}"#;
    let answered = ask(good);
    assert_eq!(answered["id"], json!(7));
    assert_eq!(answered["steps"], json!([[0, "S(0)", "R"]]));
    assert_eq!((&answered["forward"], &answered["backward"]), (&json!([["all_gather_into_tensor", 1]]), &json!([])));
    let texts = r#"{"mesh": "a=2,b=4", "shape": "16,16", "src": "S(0), S(0)", "dst": "R, S(0)", "dtype": "bfloat16"}"#;
    assert_eq!(ask(texts)["steps"], json!([[1, "S(0)", "R"], [0, "S(0)", "R"], [1, "R", "S(0)"]]));
    let wrong = [
        ("nonsense", "line 1: it is not JSON"),
        ("[1, 2]", "line 1: it is not a JSON object"),
        ("{}", "`mesh` is missing"),
        (r#"{"mesh": [2.5], "shape": [], "src": [], "dst": []}"#, "`mesh`: `2.5` is not a size"),
        (r#"{"mesh": [-2], "shape": [], "src": [], "dst": []}"#, "`mesh`: `-2` is not a size"),
        (r#"{"mesh": [2], "shape": {}, "src": [], "dst": []}"#, "`shape` is neither a list of sizes nor a string"),
        (r#"{"mesh": [2], "shape": [4], "src": [0], "dst": []}"#, "`src`: `0` is not a string"),
        (r#"{"mesh": [2], "shape": [4], "src": ["R"], "dst": ["R, R"]}"#, "`dst`: `R, R` is not one placement"),
        (r#"{"mesh": [2], "shape": [4], "src": ["R"], "dst": ["R"], "dtype": 3}"#, "`dtype` is not a string"),
    ];
    for (line, words) in wrong {
        let answered = ask(line);
        let text = answered["error"][1].as_str().unwrap_or_default();
        assert!(answered["error"][0] == json!("InputError") && text.starts_with(words), "{line}: {answered}");
    }
    assert!(answer(b" \t\n", 1, recorded()).is_none());
    assert!(answer(b"{\"mesh\": \"\xff\"}", 3, recorded()).is_some_and(|answer| !answer.understood));
}

/// Runs the program.
fn run(arguments: &[&str], stdin: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spmd-check"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    child.stdin.take().expect("stdin is piped").write_all(stdin.as_bytes()).expect("the program reads");
    let ran = child.wait_with_output().expect("the program ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    (ran.status.code().unwrap_or(-1), text(ran.stdout), text(ran.stderr))
}

#[test]
fn the_command_prints_plans_refusals_and_mistakes() {
    let ask = |target: &str, more: &[&str]| {
        let mut arguments =
            vec!["plan", "--mesh", "dp=2,tp=4", "--shape", "16,16", "--dtype", "bf16", "S(0), S(0)", target];
        arguments.extend(more);
        run(&arguments, "")
    };
    let (code, out, err) = ask("R, S(0)", &[]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("bf16[16, 16] on (dp=2, tp=4): S(0)[0]S(0)[1] -> RS(0)\n"), "{out}");
    let (code, out, _) = ask("R, S(0)", &["--format", "json"]);
    let parsed: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &parsed["total"]["bytes"]), (0, &json!(832)));
    assert_eq!(parsed["forward"]["steps"][0]["collective"], json!("all_gather"));
    let (code, out, _) = ask("P(max), S(0)", &[]);
    assert_eq!(code, 1);
    assert_eq!(
        out,
        "error: on `dp`, S(0) cannot become P(max): a shard becomes a pending sum and no other reduction\n  = torch: RuntimeError: \
         Can not redistribute from S(0) to P(max), only Shard to Partial(sum) redistribution is supported!\n  = help: use P(sum), or \
         keep the shard\n"
    );
    let (code, out, _) = ask("P(max), S(0)", &["--format", "json"]);
    let parsed: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &parsed["error"]["kind"]), (1, &json!("RuntimeError")));
    let (code, out, err) = ask("R", &[]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.starts_with("error: the target has 1 placement, but the mesh has 2 dims\n"), "{err}");
    let (code, ..) = run(&["plan", "R", "R"], "");
    assert_eq!(code, 2);
}

#[test]
fn the_command_answers_batches() {
    let question = r#"{"mesh": [8], "shape": [16, 16], "src": ["S(0)"], "dst": ["S(1)"]}"#;
    let (code, out, err) = run(&["plan", "--batch", "-"], &format!("{question}\n\n{question}"));
    assert_eq!((code, err.as_str(), out.lines().count()), (0, "", 2));
    assert!(out.contains("all_gather_into_tensor"), "{out}");
    let (_, out, _) = run(&["plan", "--batch", "-", "--device", "cuda"], question);
    assert!(out.contains("shard_dim_alltoall"), "{out}");
    let (code, out, err) = run(&["plan", "--batch", "-"], &format!("{{\n{question}\n"));
    assert_eq!((code, out.lines().count()), (2, 2));
    assert!(err.contains("1 question could not be read"), "{err}");
    let (code, _, err) = run(&["plan", "--batch", "no-such-file.jsonl"], "");
    assert_eq!(code, 2);
    assert!(err.starts_with("error: cannot read no-such-file.jsonl"), "{err}");
}
