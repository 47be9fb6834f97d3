# Installs metamcp {{version}} for this user: powershell -ExecutionPolicy Bypass -File install.ps1
#
#   $env:METAMCP_PREFIX     where to, default %LOCALAPPDATA%\metamcp: bin\metamcp.exe and share\
#   $env:METAMCP_BASE_URL   where the files of the release are; https, or this machine
#   -Uninstall              removes what was installed, and leaves ~\.metamcp alone
#
# What is fetched is compared with the release's SHA256SUMS and, where gh is installed and signed in, with GitHub's
# attestation of who built it. Needs no administrator.
param([switch]$Uninstall)

Set-StrictMode -Version 2
$ErrorActionPreference = 'Stop'

$version = '{{version}}'
$repository = '{{repository}}'
$prefix = if ($env:METAMCP_PREFIX) { $env:METAMCP_PREFIX } else { Join-Path $env:LOCALAPPDATA 'metamcp' }
$bin = Join-Path $prefix 'bin'
$shared = Join-Path (Join-Path $prefix 'share') 'metamcp'

function Set-UserPath([scriptblock]$change) {
    $before = [Environment]::GetEnvironmentVariable('Path', 'User')
    $parts = @("$before" -split ';' | Where-Object { $_ })
    $after = (& $change $parts) -join ';'
    if ($after -ne $before) { [Environment]::SetEnvironmentVariable('Path', $after, 'User') }
}

function Remove-Metamcp {
    if (-not (Test-Path (Join-Path $shared 'installed-by'))) {
        throw "there is nothing to remove: metamcp is not installed in $prefix"
    }
    Remove-Item -Force (Join-Path $bin 'metamcp.exe')
    Remove-Item -Force -ErrorAction SilentlyContinue (Join-Path $bin 'metamcp.old')
    Remove-Item -Recurse -Force $shared
    Set-UserPath { param($parts) $parts | Where-Object { $_ -ne $bin } }
    Write-Host "metamcp: removed from $prefix; your configuration is in ~\.metamcp"
}

function Install-Metamcp {
    $base = if ($env:METAMCP_BASE_URL) { $env:METAMCP_BASE_URL } else { "$repository/releases/download/v$version" }
    if ($base -notmatch '^https://' -and $base -notmatch '^http://(127\.0\.0\.1|localhost):') {
        throw "$base is not https"
    }
    # Programs for x86-64 run on ARM as well.
    $name = "metamcp-$version-windows-x86_64"
    $archive = "$name.zip"
    $work = Join-Path ([IO.Path]::GetTempPath()) "metamcp-install-$([Guid]::NewGuid())"
    New-Item -ItemType Directory -Path $work | Out-Null
    try {
        [Net.ServicePointManager]::SecurityProtocol = [Net.ServicePointManager]::SecurityProtocol -bor [Net.SecurityProtocolType]::Tls12
        Write-Host "metamcp: fetching $archive"
        $sums = Join-Path $work 'SHA256SUMS'
        $file = Join-Path $work $archive
        Invoke-WebRequest -UseBasicParsing -Uri "$base/SHA256SUMS" -OutFile $sums
        $line = Get-Content $sums | Where-Object { $_ -match "^[0-9a-f]{64} [ *]$([Regex]::Escape($archive))$" }
        if (-not $line) { throw "the release at $base has no $archive" }
        $expected = "$line".Substring(0, 64)
        Invoke-WebRequest -UseBasicParsing -Uri "$base/$archive" -OutFile $file
        $found = (Get-FileHash -Algorithm SHA256 -Path $file).Hash.ToLowerInvariant()
        if ($found -ne $expected) {
            throw "$archive is not what SHA256SUMS says ($found instead of $expected); nothing was installed"
        }
        if ($env:METAMCP_BASE_URL) {
            Write-Host 'metamcp: the checksum matches; a mirror has no attestation'
        } elseif ((Get-Command gh -ErrorAction SilentlyContinue) -and $(gh auth status *> $null; $LASTEXITCODE -eq 0)) {
            gh attestation verify $file --repo ($repository -replace '^https://github.com/', '') | Out-Null
            if ($LASTEXITCODE -ne 0) { throw "$archive has no valid attestation of $repository; nothing was installed" }
            Write-Host 'metamcp: the checksum and the attestation match'
        } else {
            Write-Host 'metamcp: the checksum matches; who built it was not verified (that needs gh, signed in)'
        }
        Expand-Archive -Path $file -DestinationPath $work
        $new = Join-Path $work $name
        $said = & (Join-Path $new 'bin\metamcp.exe') version
        if ($said -ne "metamcp $version") { throw 'the program does not run on this machine; nothing was installed' }

        New-Item -ItemType Directory -Force -Path $bin, $shared | Out-Null
        Copy-Item -Recurse -Force (Join-Path $new 'share\metamcp\*') $shared
        $program = Join-Path $bin 'metamcp.exe'
        $aside = Join-Path $bin 'metamcp.old'
        if (Test-Path $program) {
            # A program that runs can be moved aside, but not overwritten.
            Remove-Item -Force -ErrorAction SilentlyContinue $aside
            Move-Item -Force $program $aside
        }
        Copy-Item -Force (Join-Path $new 'bin\metamcp.exe') $program
        Set-Content -Path (Join-Path $shared 'installed-by') -Value 'script'
        Set-UserPath { param($parts) if ($parts -contains $bin) { $parts } else { $parts + $bin } }
        Write-Host "metamcp: installed metamcp $version as $program"
        Write-Host 'metamcp: next, in a new terminal: metamcp demo, then metamcp init'
    } finally {
        Remove-Item -Recurse -Force -ErrorAction SilentlyContinue $work
    }
}

if ($Uninstall) { Remove-Metamcp } else { Install-Metamcp }
