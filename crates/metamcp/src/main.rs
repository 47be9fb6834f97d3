//! See ARCHITECTURE.md.
use metamcp_core::config::{Config, Lifecycle, Retry, ServerConfig, Transport};
use std::time::Duration;
fn main() {
    let args: Vec<_> = std::env::args_os().collect();
    if args.get(1).is_some_and(|a| a == "__shim") {
        std::process::exit(metamcp_child::shim_main(args.into_iter().skip(2)));
    }
    let mut config = Config::default();
    config.settings.home =
        std::env::var_os("METAMCP_HOME").map(Into::into).unwrap_or("/tmp/mmhome".into());
    let text = std::fs::read_to_string(".mcp.json").unwrap();
    let v: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (name, s) in v["mcpServers"].as_object().unwrap() {
        let a: Vec<String> = s["args"]
            .as_array()
            .map(|a| a.iter().map(|x| x.as_str().unwrap().to_owned()).collect())
            .unwrap_or_default();
        let refs: Vec<&str> = a.iter().map(|s| s.as_str()).collect();
        let mut c = ServerConfig::stdio(name.clone(), s["command"].as_str().unwrap(), &refs);
        if let Some(t) = s["timeoutMs"].as_u64() {
            c.timeout = Some(Duration::from_millis(t));
        }
        if s["retry"] == "always" {
            c.retry.default = Retry::Always;
        }
        if s["lifecycle"] == "ephemeral" {
            c.lifecycle = Lifecycle::Ephemeral;
        }
        if let Transport::Stdio { env, .. } = &mut c.transport {
            for (k, v) in s["env"].as_object().into_iter().flatten() {
                env.push((
                    k.clone(),
                    metamcp_core::secret::Secret::new(k.clone(), v.as_str().unwrap()),
                ));
            }
        }
        config.servers.push(c);
    }
    if let Some(n) = v["pool"]["poolSize"].as_u64() {
        config.settings.pool.size = n as u32;
    }
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    rt.block_on(async {
        let gateway = metamcp_engine::gateway::Gateway::start(
            &config,
            metamcp_child::ShimCommand::this_binary("__shim").unwrap(),
        );
        let limit = config.settings.limits.line_bytes;
        let stop = async {
            let mut term =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
            let mut int =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()).unwrap();
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        };
        metamcp_engine::serve::stdio::serve(
            &gateway,
            metamcp_engine::stream::input(),
            metamcp_engine::stream::output(),
            limit,
            stop,
        )
        .await;
    });
    rt.shutdown_background();
}
