// Light or dark before anything is drawn: what was chosen here last, else what the system says.
"use strict";
try {
  const chosen = localStorage.getItem("metamcp.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Without storage it is the system's choice.
}
