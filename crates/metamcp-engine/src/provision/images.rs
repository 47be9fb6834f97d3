//! Container images, through the user's own docker. An image is identified by its digest alone: that is pulled, verified
//! and run.

use std::path::Path;
use std::time::Duration;

use metamcp_provisioning::provision::{Candidate, Facts, Plan};

use super::clients::{ClientError, DOWNLOAD_TIMEOUT, LOOKUP_TIMEOUT, Printed, prepare, run};
use super::install::InstallError;
use crate::clock;

const DOCKER: &str = "docker";
/// Asks the engine; otherwise the client alone would answer.
const ENGINE: [&str; 3] = ["version", "--format", "{{.Server.Os}}"];
/// Error messages for an image that does not exist.
const NOT_THERE: [&str; 3] = ["no such manifest", "manifest unknown", "name unknown"];
/// Also used for other things that are missing, so it has to name the image.
const MISSING: &str = "not found";
/// A gateway takes a moment to stop the container of a removed server.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_INTERVAL: Duration = Duration::from_millis(250);

/// The metadata of an image. The digest is its version; the server registry says when it was published, and docker
/// whether it exists.
pub(super) async fn facts(candidate: &Candidate, work: &Path) -> Result<Facts, ClientError> {
    prepare(work)?;
    engine(work).await?;
    let image = &candidate.offer.identifier;
    let printed = run(DOCKER, &["manifest", "inspect", image], work, LOOKUP_TIMEOUT).await?;
    if !printed.succeeded && is_not_there(&printed.stderr, image) {
        return Ok(Facts::default());
    }
    // The engine may use a mirror of its own, or the client cannot inspect: then the pull decides.
    Ok(Facts {
        exists: true,
        integrity: digest(image).map(str::to_owned),
        published: candidate.published,
        ..Facts::default()
    })
}

/// Whether docker's error says that the image does not exist. A credential helper that is "not found" is another matter.
fn is_not_there(said: &str, image: &str) -> bool {
    let said = said.to_ascii_lowercase();
    let image = image.to_ascii_lowercase();
    let digest = digest(&image).unwrap_or(&image);
    NOT_THERE.iter().any(|words| said.contains(words))
        || said.lines().any(|line| line.contains(MISSING) && line.contains(digest))
}

/// Whether there is an engine that runs Linux images.
async fn engine(folder: &Path) -> Result<(), ClientError> {
    let printed = run(DOCKER, &ENGINE, folder, LOOKUP_TIMEOUT).await?;
    let runs = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
    match runs.as_str() {
        "linux" if printed.succeeded => Ok(()),
        "" => Err(ClientError::NoEngine { said: printed.error_output() }),
        _ if !printed.succeeded => Err(ClientError::NoEngine { said: printed.error_output() }),
        other => {
            let why = format!("docker runs {other} containers here, and the image is for linux");
            Err(ClientError::Unusable { why })
        }
    }
}

/// Pulls the image of a plan and verifies its digest; returns whether it is new on this machine.
pub(super) async fn fetch(plan: &Plan, folder: &Path) -> Result<bool, InstallError> {
    engine(folder).await?;
    let image = &plan.identifier;
    let was_here = digests(image, folder).await?.is_some();
    let printed = run(DOCKER, &["pull", "--quiet", image], folder, DOWNLOAD_TIMEOUT).await?;
    if !printed.succeeded {
        return Err(failed(&printed).into());
    }
    let found = digests(image, folder).await?;
    let is_it = |known: &str| digest(known).is_some() && digest(known) == digest(image);
    if found.as_ref().is_some_and(|found| found.iter().any(|known| is_it(known))) {
        return Ok(!was_here);
    }
    if !was_here {
        // Nothing will ever refer to it.
        remove(image, folder).await;
    }
    let found = found.unwrap_or_default().join(", ");
    let found = if found.is_empty() { "none".to_owned() } else { found };
    let what = format!("the image that docker pulled has the digests {found}");
    Err(InstallError::Changed { what })
}

/// Removes an image that we pulled. Docker keeps one that is in use elsewhere.
pub(super) async fn remove(image: &str, folder: &Path) {
    let end = clock::instant() + STOP_TIMEOUT;
    loop {
        let printed = run(DOCKER, &["image", "rm", image], folder, LOOKUP_TIMEOUT).await;
        let is_used = |printed: &Printed| !printed.succeeded && printed.stderr.contains("conflict");
        if !printed.is_ok_and(|printed| is_used(&printed)) || clock::instant() >= end {
            return;
        }
        tokio::time::sleep(STOP_INTERVAL).await;
    }
}

/// The digests of a local image, if it is here.
async fn digests(image: &str, folder: &Path) -> Result<Option<Vec<String>>, ClientError> {
    let args = ["image", "inspect", "--format", "{{json .RepoDigests}}", image];
    let printed = run(DOCKER, &args, folder, LOOKUP_TIMEOUT).await?;
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
    fn other_not_found_errors_are_no_missing_image() {
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
