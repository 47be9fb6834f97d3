//! Where packages of metamcp put the model, as seen from the program. Such a file is trusted as the program beside it is.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::{FILE, ModelError};

/// The places for a program, first the likeliest: a prefix such as `/usr` (archives, Debian, wheels, Homebrew, the install
/// script), the program's own folder (zip files), the package beside ours in `node_modules/@metamcp`.
pub(super) fn places(program: &Path) -> Vec<PathBuf> {
    let Some(folder) = program.parent() else { return Vec::new() };
    let mut places = Vec::new();
    if let Some(prefix) = folder.parent() {
        places.push(prefix.join("share").join("metamcp").join(FILE));
    }
    places.push(folder.join(FILE));
    // @metamcp/linux-x64/bin/metamcp and @metamcp/model/FILE
    if let Some(scope) = folder.ancestors().nth(2).filter(|scope| scope.ends_with("@metamcp")) {
        places.push(scope.join("model").join(FILE));
    }
    places
}

/// The whole file, up to `cap`.
pub(super) fn read(path: &Path, cap: u64) -> Result<Vec<u8>, ModelError> {
    let unreadable = |source| ModelError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(cap).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

pub(super) fn modified_ms(path: &Path) -> Option<u64> {
    let modified = path.metadata().ok()?.modified().ok()?;
    u64::try_from(modified.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_has_its_place() {
        let cases = [
            ("/usr/bin/metamcp", "/usr/share/metamcp"),
            ("/x/venv/bin/metamcp", "/x/venv/share/metamcp"),
            ("/x/Cellar/metamcp/0.2.0/bin/metamcp", "/x/Cellar/metamcp/0.2.0/share/metamcp"),
            ("/x/scoop/apps/metamcp/0.2.0/metamcp", "/x/scoop/apps/metamcp/0.2.0"),
            ("/x/node_modules/@metamcp/linux-x64/bin/metamcp", "/x/node_modules/@metamcp/model"),
        ];
        for (program, folder) in cases {
            let places = places(Path::new(program));
            assert!(places.contains(&Path::new(folder).join(FILE)), "{program}: {places:?}");
        }
        assert_eq!(places(Path::new("/home/me/target/debug/metamcp")).len(), 2);
        assert!(places(Path::new("/")).is_empty());
    }
}
