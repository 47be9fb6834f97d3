{
  description = "One MCP server in front of all your MCP servers";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      version = "{{version}}";
      # The programs for Linux are static, and those for macOS need only what every Mac has: nothing is patched.
      archives = {
        x86_64-linux = {
          label = "linux-x86_64";
          sha256 = "{{sha256 linux-x86_64}}";
        };
        aarch64-linux = {
          label = "linux-aarch64";
          sha256 = "{{sha256 linux-aarch64}}";
        };
        x86_64-darwin = {
          label = "macos-x86_64";
          sha256 = "{{sha256 macos-x86_64}}";
        };
        aarch64-darwin = {
          label = "macos-aarch64";
          sha256 = "{{sha256 macos-aarch64}}";
        };
      };
      package =
        system:
        let
          pkgs = nixpkgs.legacyPackages.${system};
          archive = archives.${system};
        in
        pkgs.stdenvNoCC.mkDerivation {
          pname = "metamcp";
          inherit version;
          src = pkgs.fetchurl {
            url = "{{download}}/metamcp-${version}-${archive.label}.tar.gz";
            inherit (archive) sha256;
          };
          dontConfigure = true;
          dontBuild = true;
          dontStrip = true;
          installPhase = ''
            runHook preInstall
            mkdir -p $out
            cp -r bin share $out/
            runHook postInstall
          '';
          meta = {
            description = "One MCP server in front of all your MCP servers";
            homepage = "{{repository}}";
            license = pkgs.lib.licenses.asl20;
            mainProgram = "metamcp";
            platforms = builtins.attrNames archives;
            sourceProvenance = [ pkgs.lib.sourceTypes.binaryNativeCode ];
          };
        };
    in
    {
      packages = nixpkgs.lib.genAttrs (builtins.attrNames archives) (system: rec {
        metamcp = package system;
        default = metamcp;
      });
    };
}
