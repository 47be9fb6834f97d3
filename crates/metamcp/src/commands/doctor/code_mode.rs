//! Code mode: whether scripts can run here, and which layers hold them.

use metamcp_config::settings::CodeProfile;
use metamcp_engine::config::{Lack, Loaded};
use metamcp_engine::surface::execute::profile;
use metamcp_sandbox::host::{Profile, Workers};
use metamcp_sandbox::layer;

use super::{Finding, Level};
use crate::isolation;

const AREA: &str = "code mode";

/// Starts a worker as for a script, which never comes, and asks what holds it.
pub(super) fn sandbox(loaded: &Loaded) -> anyhow::Result<Vec<Finding>> {
    let code = &loaded.config.settings.code;
    let word = code.profile.as_str();
    let Some(chosen) = profile(code.profile) else {
        let words = "scripts are off: code.profile is `off`";
        return Ok(vec![Finding::new(Level::Note, AREA, words)]);
    };
    if let Some(Lack { reason, cure }) = isolation::lacks(code.profile) {
        let words = format!("scripts have no sandbox (profile `{word}`) and are refused: {reason}");
        return Ok(vec![Finding::new(Level::Warning, AREA, words).hint(cure)]);
    }
    if code.profile == CodeProfile::Docker {
        let words = format!("the sandbox of scripts is a container (profile `{word}`)");
        return Ok(vec![Finding::new(Level::Good, AREA, words)]);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let workers = Workers::new(crate::worker(code), chosen, 0);
    let worker = match runtime.block_on(workers.take()) {
        Ok(worker) => worker,
        Err(refused) => {
            let words =
                format!("scripts have no sandbox (profile `{word}`) and are refused: {refused}");
            let hint =
                "choose another code.profile; a weaker one is never used in place of a chosen one";
            return Ok(vec![Finding::new(Level::Warning, AREA, words).hint(hint)]);
        }
    };
    let layers = worker.layers();
    let words = format!(
        "the sandbox of scripts (profile `{word}`) has {} layers: {}",
        layers.len(),
        layers.join(", ")
    );
    let mut findings = vec![Finding::new(Level::Good, AREA, words)];
    findings.extend(worker.missing().iter().map(|one| {
        let words = format!(
            "the sandbox of scripts lacks {}, which is not demanded: {}",
            one.layer, one.reason
        );
        Finding::new(Level::Note, AREA, words)
    }));
    // The kernel's own denial of files and network, by whatever name.
    let denies = [layer::SECCOMP, layer::SEATBELT];
    if chosen == Profile::Wasm && !layers.iter().any(|held| denies.contains(&held.as_str())) {
        let words = "in this sandbox WebAssembly alone keeps scripts from files, network and programs: the system does not deny them a second time";
        findings.push(Finding::new(Level::Note, AREA, words));
    }
    Ok(findings)
}
