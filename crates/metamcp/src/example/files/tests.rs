use super::*;

fn call(folder: &mut Folder, tool: &str, arguments: Value) -> Result<Value, String> {
    let tool = SERVICE.tools.iter().find(|known| known.name == tool).unwrap();
    let Value::Object(given) = arguments else { panic!("arguments are an object") };
    let answer =
        Arguments::checked(tool.takes, &given).and_then(|arguments| (tool.run)(folder, &arguments));
    match answer {
        Ok(Answer::Data(data)) => Ok(data),
        Ok(Answer::Text(text)) => Ok(json!(text)),
        Err(Refusal(why)) => Err(why),
    }
}

/// A shared folder with a sibling whose name has the same prefix, and a file in both.
fn shared() -> (tempfile::TempDir, Folder) {
    let temporary = tempfile::tempdir().unwrap();
    let (data, neighbour) = (temporary.path().join("data"), temporary.path().join("data-old"));
    fs::create_dir_all(data.join("inner")).unwrap();
    fs::create_dir(&neighbour).unwrap();
    fs::write(neighbour.join("secret.txt"), "secret").unwrap();
    fs::write(data.join("lines.txt"), "one\ntwo\nthree\nfour\n").unwrap();
    fs::write(data.join("inner/Plan.md"), "Buy a Lamp\n").unwrap();
    let folder = Folder::open(&data).unwrap();
    (temporary, folder)
}

#[test]
fn paths_that_lead_out_are_refused_by_every_tool() {
    let (temporary, mut folder) = shared();
    let absolute = temporary.path().join("data-old/secret.txt").display().to_string();
    let mut ways = vec![
        "../data-old/secret.txt".to_owned(),
        "inner/../../data-old/secret.txt".to_owned(),
        "..".to_owned(),
        absolute,
    ];
    #[cfg(unix)]
    {
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, temporary.path().join("data").join(name)).unwrap();
            name.to_owned()
        };
        ways.push(link("../data-old/secret.txt", "link"));
        ways.push(link("../data-old", "tree") + "/secret.txt");
        ways.push(link("../data-old/new.txt", "dangling"));
    }
    for way in &ways {
        for tool in ["read_file", "file_info", "list_directory"] {
            let refused = call(&mut folder, tool, json!({ "path": way })).unwrap_err();
            let said = ["leads out of", "is not relative to", "does not exist"];
            assert!(said.iter().any(|said| refused.contains(said)), "{tool} {way}: {refused}");
        }
        assert!(
            call(&mut folder, "search_files", json!({ "text": "secret", "path": way })).is_err()
        );
        call(&mut folder, "write_file", json!({ "path": way, "content": "overwritten" }))
            .unwrap_err();
    }
    assert_eq!(fs::read_to_string(temporary.path().join("data-old/secret.txt")).unwrap(), "secret");
    assert!(!temporary.path().join("data-old/new.txt").exists(), "written through a dangling link");
    let found =
        call(&mut folder, "search_files", json!({ "text": "secret", "within": "contents" }))
            .unwrap();
    assert_eq!(found["matches"], json!([]), "a search followed a link");
}

#[test]
fn inner_dots_and_links_that_stay_inside_are_fine() {
    let (_temporary, mut folder) = shared();
    assert_eq!(
        call(&mut folder, "read_file", json!({ "path": "inner/../lines.txt", "head": 1 })).unwrap(),
        "one\n"
    );
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("inner/Plan.md", folder.root.join("plan")).unwrap();
        let written =
            call(&mut folder, "write_file", json!({ "path": "plan", "content": "new" })).unwrap();
        assert_eq!(written["path"], "inner/Plan.md");
        assert!(folder.root.join("plan").is_symlink(), "the link itself stays");
    }
}

#[test]
fn parts_of_a_file() {
    let (_temporary, mut folder) = shared();
    let cases = [
        (json!({ "path": "lines.txt" }), "one\ntwo\nthree\nfour\n"),
        (json!({ "path": "lines.txt", "head": 2 }), "one\ntwo\n"),
        (json!({ "path": "lines.txt", "tail": 1 }), "four\n"),
        (json!({ "path": "lines.txt", "offset": 1, "limit": 2 }), "two\nthree\n"),
        (json!({ "path": "lines.txt", "offset": 9 }), ""),
    ];
    for (arguments, expected) in cases {
        assert_eq!(call(&mut folder, "read_file", arguments).unwrap(), expected);
    }
    let both = call(&mut folder, "read_file", json!({ "path": "lines.txt", "head": 1, "tail": 1 }));
    assert!(both.unwrap_err().contains("not several"));
    fs::write(folder.root.join("long.txt"), "é".repeat(MAX_ANSWER)).unwrap();
    let cut = call(&mut folder, "read_file", json!({ "path": "long.txt" })).unwrap();
    assert!(cut.as_str().unwrap().ends_with("[cut: 65536 more bytes; read on with offset 0]"));
    fs::write(folder.root.join("bytes"), [0xff, 0]).unwrap();
    assert_eq!(
        call(&mut folder, "read_file", json!({ "path": "bytes" })).unwrap_err(),
        "bytes: not UTF-8 text"
    );
    fs::write(folder.root.join("huge"), vec![b'x'; MAX_FILE as usize + 1]).unwrap();
    assert_eq!(
        call(&mut folder, "read_file", json!({ "path": "huge" })).unwrap_err(),
        "huge: larger than 1048576 bytes"
    );
}

#[test]
fn listing_searching_and_writing() {
    let (_temporary, mut folder) = shared();
    let listed = call(&mut folder, "list_directory", json!({})).unwrap();
    let expected = json!([{ "path": "inner", "kind": "folder" }, { "path": "lines.txt", "kind": "file", "size": 19 }]);
    assert_eq!(listed["entries"], expected);
    let found = call(&mut folder, "search_files", json!({ "text": "lamp" })).unwrap();
    assert_eq!(
        found["matches"],
        json!([{ "path": "inner/Plan.md", "line": 1, "excerpt": "Buy a Lamp" }])
    );
    let cased =
        call(&mut folder, "search_files", json!({ "text": "lamp", "match_case": true })).unwrap();
    assert_eq!(cased["matches"], json!([]));
    let limited =
        call(&mut folder, "search_files", json!({ "text": "e", "within": "contents", "limit": 1 }))
            .unwrap();
    assert_eq!(
        (limited["matches"].as_array().unwrap().len(), &limited["truncated"]),
        (1, &json!(true))
    );
    let new = json!({ "path": "inner/new.txt", "content": "héllo", "mode": "create" });
    let written = call(&mut folder, "write_file", new.clone()).unwrap();
    assert_eq!(written, json!({ "path": "inner/new.txt", "size": 6, "created": true }));
    assert_eq!(
        call(&mut folder, "write_file", new).unwrap_err(),
        "inner/new.txt exists already; use mode replace"
    );
    let info = call(&mut folder, "file_info", json!({ "path": "inner/new.txt" })).unwrap();
    assert_eq!((&info["kind"], &info["size"]), (&json!("file"), &json!(6)));
    let orphan = call(&mut folder, "write_file", json!({ "path": "no/such/file", "content": "" }))
        .unwrap_err();
    assert_eq!(orphan, "no/such/file does not exist; list_directory shows what does");
}
