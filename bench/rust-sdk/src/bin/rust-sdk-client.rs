//! A client made with the official Rust SDK that calls `echo` over Streamable HTTP: what calling a remote server costs
//! without a gateway.
//!
//!   rust-sdk-client ADDRESS CALLS IN_FLIGHT PAYLOAD
//!
//! Prints one JSON line with the names that the benchmark's own client uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::StreamableHttpClientTransport;

/// Calls of each worker before the clock starts.
const WARM_UP: usize = 20;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, calls, in_flight, payload] = arguments.as_slice() else {
        anyhow::bail!("usage: rust-sdk-client ADDRESS CALLS IN_FLIGHT PAYLOAD");
    };
    let (calls, in_flight, payload): (usize, usize, usize) =
        (calls.parse()?, in_flight.parse()?, payload.parse()?);
    let transport = StreamableHttpClientTransport::from_uri(address.as_str());
    let client = Arc::new(().serve(transport).await?);
    let mut object = serde_json::Map::new();
    object.insert("text".to_owned(), "x".repeat(payload).into());
    let round = async |calls: usize| -> anyhow::Result<Vec<u64>> {
        let left = Arc::new(AtomicUsize::new(calls));
        let workers: Vec<_> = (0..in_flight)
            .map(|_| {
                let (client, left, object) = (Arc::clone(&client), Arc::clone(&left), object.clone());
                tokio::spawn(async move {
                    let mut times = Vec::new();
                    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                        let mut params = CallToolRequestParams::new("echo");
                        params.arguments = Some(object.clone());
                        let began = Instant::now();
                        client.call_tool(params).await?;
                        times.push(began.elapsed().as_nanos() as u64);
                    }
                    anyhow::Ok(times)
                })
            })
            .collect();
        let mut times = Vec::with_capacity(calls);
        for worker in workers {
            times.extend(worker.await??);
        }
        Ok(times)
    };
    round(WARM_UP * in_flight).await?;
    let processor = processor_ns();
    let began = Instant::now();
    let mut times = round(calls).await?;
    let wall = began.elapsed();
    let spent = processor_ns() - processor;
    times.sort_unstable();
    let percentile = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)] as f64 / 1000.0;
    println!(
        "{}",
        serde_json::json!({
            "calls": times.len(),
            "p50_us": percentile(50),
            "p99_us": percentile(99),
            "calls_per_s": times.len() as f64 / wall.as_secs_f64(),
            "cpu_us_per_call": spent as f64 / 1000.0 / times.len() as f64,
        })
    );
    Ok(())
}

/// What all threads of this process have spent on a processor.
fn processor_ns() -> u64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0 };
    threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|stat| stat.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}
