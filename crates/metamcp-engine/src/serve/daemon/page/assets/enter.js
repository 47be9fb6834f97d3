// Exchanges the link for a cookie and a key. What is behind # was sent nowhere, and leaves the history at once.
const said = document.getElementById("said");
const token = location.hash.slice(1);
history.replaceState(null, "", "/enter");

async function enter() {
  if (token === "") {
    said.textContent = "This link is not whole. Run `metamcp ui` again.";
    return;
  }
  const answer = await fetch("/enter", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token }),
  });
  const body = await answer.json();
  if (!answer.ok) {
    said.textContent = String(body.error);
    return;
  }
  localStorage.setItem("metamcp.key", String(body.key));
  location.replace("/");
}

enter().catch(() => {
  said.textContent = "The daemon does not answer. Run `metamcp ui` again.";
});
