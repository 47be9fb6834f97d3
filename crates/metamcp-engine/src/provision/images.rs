//! Images, through the user's own docker. One is known by its digest alone: what is pulled, checked and run is that.

use std::path::Path;
use std::time::Duration;

use metamcp_provisioning::provision::{Candidate, Facts, Plan};

use super::clients::{ClientError, FETCH, LOOK, Printed, prepare, run};
use super::install::InstallError;
use crate::clock;

const DOCKER: &str = "docker";
/// Asks the engine; without one the client alone would answer.
const ENGINE: [&str; 3] = ["version", "--format", "{{.Server.Os}}"];
/// What registries say of an image that they do not have, in the words of the client.
const NOT_THERE: [&str; 3] = ["no such manifest", "manifest unknown", "name unknown"];
/// What some of them say of it, and others of what they miss themselves: then it has to name the image.
const MISSING: &str = "not found";
/// A gateway that runs an image takes a moment to end it once it was removed.
const LET_GO: Duration = Duration::from_secs(20);
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// What is known of an image. Its digest is its version, so it cannot be another; its registry of servers says since
/// when it is offered, and docker whether it is there.
pub(super) async fn facts(candidate: &Candidate, work: &Path) -> Result<Facts, ClientError> {
    prepare(work)?;
    engine(work).await?;
    let image = &candidate.offer.identifier;
    let printed = run(DOCKER, &["manifest", "inspect", image], work, LOOK).await?;
    if !printed.succeeded && is_not_there(&printed.stderr, image) {
        return Ok(Facts::default());
    }
    // A mirror that only the engine knows, or a client that cannot look: then pulling it tells.
    Ok(Facts {
        exists: true,
        integrity: digest(image).map(str::to_owned),
        published: candidate.published,
        ..Facts::default()
    })
}

/// Whether a client that cannot look at an image says that there is none. A helper for passwords that is "not found" is
/// another matter.
fn is_not_there(said: &str, image: &str) -> bool {
    let said = said.to_ascii_lowercase();
    let image = image.to_ascii_lowercase();
    let digest = digest(&image).unwrap_or(&image);
    NOT_THERE.iter().any(|words| said.contains(words))
        || said.lines().any(|line| line.contains(MISSING) && line.contains(digest))
}

/// Whether there is an engine that runs such images.
async fn engine(folder: &Path) -> Result<(), ClientError> {
    let printed = run(DOCKER, &ENGINE, folder, LOOK).await?;
    let runs = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
    match runs.as_str() {
        "linux" if printed.succeeded => Ok(()),
        "" => Err(ClientError::NoEngine { said: printed.complaint() }),
        _ if !printed.succeeded => Err(ClientError::NoEngine { said: printed.complaint() }),
        other => {
            let why = format!("docker runs containers of {other} here, and images are of linux");
            Err(ClientError::Unusable { why })
        }
    }
}

/// Pulls the image of a plan and looks whether it is the one; whether it was not here before.
pub(super) async fn fetch(plan: &Plan, folder: &Path) -> Result<bool, InstallError> {
    engine(folder).await?;
    let image = &plan.identifier;
    let was_here = digests(image, folder).await?.is_some();
    let printed = run(DOCKER, &["pull", "--quiet", image], folder, FETCH).await?;
    if !printed.succeeded {
        return Err(failed(&printed).into());
    }
    let found = digests(image, folder).await?;
    let is_it = |known: &str| digest(known).is_some() && digest(known) == digest(image);
    if found.as_ref().is_some_and(|found| found.iter().any(|known| is_it(known))) {
        return Ok(!was_here);
    }
    if !was_here {
        // Nothing will ever name it.
        remove(image, folder).await;
    }
    let found = found.unwrap_or_default().join(", ");
    let found = if found.is_empty() { "none".to_owned() } else { found };
    let what = format!("the image that docker brought has the digests {found}");
    Err(InstallError::Changed { what })
}

/// Takes an image away that we brought. One that is used otherwise stays, as docker sees to.
pub(super) async fn remove(image: &str, folder: &Path) {
    let end = clock::instant() + LET_GO;
    loop {
        let printed = run(DOCKER, &["image", "rm", image], folder, LOOK).await;
        let is_used = |printed: &Printed| !printed.succeeded && printed.stderr.contains("conflict");
        if !printed.is_ok_and(|printed| is_used(&printed)) || clock::instant() >= end {
            return;
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// The digests that an image is known by here, if it is here.
async fn digests(image: &str, folder: &Path) -> Result<Option<Vec<String>>, ClientError> {
    let args = ["image", "inspect", "--format", "{{json .RepoDigests}}", image];
    let printed = run(DOCKER, &args, folder, LOOK).await?;
    if !printed.succeeded {
        return Ok(None);
    }
    Ok(serde_json::from_slice(&printed.stdout).ok())
}

fn digest(image: &str) -> Option<&str> {
    image.split_once('@').map(|(_, digest)| digest)
}

fn failed(printed: &Printed) -> ClientError {
    printed.failure(DOCKER)
}

#[cfg(test)]
mod tests {
    use super::is_not_there;

    #[test]
    fn what_docker_misses_itself_is_no_missing_image() {
        let image = "ghcr.io/a/b@sha256:0a1b";
        for said in [
            "no such manifest: ghcr.io/a/b@sha256:0a1b",
            "manifest unknown: manifest unknown",
            "Error response from daemon: manifest for ghcr.io/a/b@sha256:0a1b not found: manifest unknown",
            "failed to resolve reference: ghcr.io/a/b@sha256:0a1b: not found",
        ] {
            assert!(is_not_there(said, image), "{said}");
        }
        for said in [
            "error getting credentials - err: exec: \"docker-credential-x\": executable file not found in $PATH, out: ``",
            "dial tcp: lookup ghcr.io: host not found",
            "unauthorized",
        ] {
            assert!(!is_not_there(said, image), "{said}");
        }
    }
}
