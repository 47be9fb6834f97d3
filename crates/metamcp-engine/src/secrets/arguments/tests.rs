use std::os::unix::fs::symlink;

use super::*;

fn arguments(starter: &Path, runtime: Runtime) -> SecretArguments {
    SecretArguments { runtime, starter: starter.to_owned(), values: Vec::new() }
}

#[test]
fn the_launcher_is_rewritten_before_each_start() {
    let folder = tempfile::tempdir().unwrap();
    for (runtime, code) in [(Runtime::Node, NODE), (Runtime::Python, PYTHON)] {
        assert!(code.contains(VARIABLE));
        let file = folder.path().join(starter(runtime));
        let written = || std::fs::read_to_string(&file).unwrap();
        let values = [(2, Secret::new("url", "a \"b\""))];
        let (name, value) = handed(&arguments(&file, runtime), &values).unwrap();
        assert_eq!((name.as_str(), value.expose()), (VARIABLE, r#"[[2,"a \"b\""]]"#));
        assert_eq!(written(), code);
        for other in [format!("{code}steal()"), String::new(), code.replacen('a', "b", 1)] {
            std::fs::write(&file, other).unwrap();
            handed(&arguments(&file, runtime), &values).unwrap();
            assert_eq!(written(), code);
        }
        std::fs::remove_file(&file).unwrap();
        symlink("/etc/passwd", &file).unwrap();
        let outcome = handed(&arguments(&file, runtime), &values);
        assert!(outcome.is_err() || std::fs::read_link(&file).is_err(), "{outcome:?}");
    }
}

#[test]
fn a_missing_server_folder_is_an_error() {
    let file = Path::new("/nonexistent/metamcp/x/metamcp-start.py");
    let told = handed(&arguments(file, Runtime::Python), &[]).unwrap_err();
    assert!(told.contains("its launcher cannot be written"), "{told}");
    assert!(told.contains("/nonexistent/metamcp/x"), "{told}");
}
