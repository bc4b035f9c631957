//! The page and the graph. In: a small tree. Out: documents. Never: how they look, which `scripts/report_page.py` tries in a browser.
//! Next: `src/render/report.rs`, `src/render/graph.rs`.

use super::support::{Session, repository};

fn tour() -> Session {
    let session = Session::new();
    session.write("block.py", repository("corpus/tour/block.py"));
    session.write("odd.py", "# </script><b>&\ndef f(x):  # spmd: x: {tp: R} -> {tp: R}\n    return x\n");
    session
}

#[test]
fn the_page_holds_types_collectives_findings_and_coverage_and_needs_nothing_else() {
    let session = tour();
    let ran = session.run(&["report", "-o", "r.html"]);
    assert!(ran.code == 0 && ran.err == "wrote `r.html` with 1 finding\n", "{ran:?}");
    let page = std::fs::read_to_string(session.folder.join("r.html")).expect("the page is written");
    for part in [
        "<html lang=\"en\">",
        "prefers-color-scheme: dark",
        "<option value=\"sequence_parallel is false\">",
        "<tr id=\"f0-28\" class=\"found\">",
        "<span class=\"t I\">I</span><span class=\"axis\">@tp</span>",
        "<b>reduce_from_tensor_model_parallel_region</b> <span>forward all_reduce: V|P \u{2192} I</span> <span>backward identity</span>",
        "data-from=\"f0-27\"",
        "<h3><code>ParallelBlock.forward(",
        "collective calls",
        "&lt;/script&gt;&lt;b&gt;&amp;",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let elsewhere = ["http:", "https:", "src=", "<link", "@import", "url("];
    let named = |part: &&str| page.replace("http://www.w3.org/2000/svg", "").contains(*part);
    assert_eq!(elsewhere.iter().filter(|p| named(p)).collect::<Vec<_>>(), Vec::<&&str>::new());
    assert_eq!(page.matches("<table").count(), page.matches("</table>").count());
    assert_eq!(page.matches("</script>").count(), 1);
    assert_eq!(session.run(&["report", "-o", "-"]).out, page);
    assert_eq!(session.run(&["report", "-o", "no/such/folder.html"]).code, 2);
}

#[test]
fn a_graph_follows_each_configuration_to_where_it_goes_wrong() {
    let session = tour();
    let dot = session.run(&["graph", "ParallelBlock.forward"]).out;
    assert!(dot.starts_with("digraph \"ParallelBlock.forward\" {\n") && dot.ends_with("}\n"), "{dot}");
    let node = |part: &str| {
        let line = dot.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {dot}"));
        line.split_whitespace().next().unwrap_or("").to_owned()
    };
    let (gathered, reduced, wrong) = (node("25: x"), node("27: x"), node("SPMD101"));
    assert!(
        dot.contains(&format!("{gathered} -> {wrong};")) && dot.contains(&format!("{reduced} -> {wrong};")),
        "{dot}"
    );
    assert!(!dot.contains(&format!("{gathered} -> {reduced};")), "{dot}");
    let mermaid = session.run(&["graph", "block.ParallelBlock.forward", "--format", "mermaid"]).out;
    assert!(mermaid.contains("flowchart TD\n") && mermaid.contains("classDef finding"), "{mermaid}");
    let none = session.run(&["graph", "ParallelBlock.forwrd"]);
    assert!(none.code == 2 && none.err.contains("did you mean `ParallelBlock.forward`?"), "{none:?}");
}

#[test]
fn a_file_without_known_types_says_so_aside() {
    let session = Session::new();
    session.write("plain.py", "def double(x):\n    return x * 2\n");
    for arguments in [&["types", "plain.py"][..], &["types", "--variables", "plain.py"]] {
        let ran = session.run(arguments);
        assert!(ran.code == 0 && ran.out.is_empty() && ran.err.contains("nothing here has a known type"), "{ran:?}");
    }
    assert_eq!(session.run(&["types", "--quiet", "plain.py"]).err, "");
    assert_eq!(session.run(&["types", "--output-format", "json", "plain.py"]).err, "");
}

#[test]
fn coverage_counts_what_the_body_of_a_script_reaches() {
    let session = Session::new();
    let script = "import torch\nimport torch.distributed as dist\n\n\ndef main():\n    x = torch.ones(2)\n    dist.all_reduce(x)\n\n\n\
                  if __name__ == \"__main__\":\n    main()\n";
    session.write("train.py", script);
    let ran = session.run(&["check", "--coverage", "."]);
    let said = format!("{}{}", ran.out, ran.err);
    for line in [
        "1  collective calls\n",
        "1  collective calls with a known source or result type\n",
        "0  collective calls: not reached\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}
