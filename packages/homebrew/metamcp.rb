class Metamcp < Formula
  desc "One MCP server in front of all your MCP servers"
  homepage "{{repository}}"
  version "{{version}}"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "{{download}}/metamcp-{{version}}-macos-aarch64.tar.gz"
      sha256 "{{sha256 macos-aarch64}}"
    end
    on_intel do
      url "{{download}}/metamcp-{{version}}-macos-x86_64.tar.gz"
      sha256 "{{sha256 macos-x86_64}}"
    end
  end

  on_linux do
    on_arm do
      url "{{download}}/metamcp-{{version}}-linux-aarch64.tar.gz"
      sha256 "{{sha256 linux-aarch64}}"
    end
    on_intel do
      url "{{download}}/metamcp-{{version}}-linux-x86_64.tar.gz"
      sha256 "{{sha256 linux-x86_64}}"
    end
  end

  def install
    bin.install "bin/metamcp"
    pkgshare.install Dir["share/metamcp/*"]
    man1.install Dir["share/man/man1/*"]
    bash_completion.install "share/bash-completion/completions/metamcp"
    zsh_completion.install "share/zsh/site-functions/_metamcp"
    fish_completion.install "share/fish/vendor_completions.d/metamcp.fish"
  end

  service do
    run [opt_bin/"metamcp", "daemon", "run"]
    environment_variables METAMCP_DAEMON_IDLE_EXIT: "0"
    keep_alive crashed: true
  end

  test do
    assert_match "metamcp #{version}", shell_output("#{bin}/metamcp --version")
    assert_match "homebrew", shell_output("#{bin}/metamcp --version --json")
    system bin/"metamcp", "demo"
  end
end
